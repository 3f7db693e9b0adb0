"""Does the stream still use more than a few directions? A diagnostic for pytest-fadiag, and files that only this lab has."""
