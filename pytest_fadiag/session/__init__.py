"""The pytest side of an audit.

Imported when something is audited, so that a run without one pays nothing.
"""
