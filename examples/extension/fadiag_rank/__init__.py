"""A diagnostic for pytest-fadiag, with the files of one lab."""
