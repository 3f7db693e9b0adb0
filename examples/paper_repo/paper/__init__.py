"""The code of the paper."""
