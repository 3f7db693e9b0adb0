"""Architectures whose residual stream was written down by hand, and whether the audit finds it."""
