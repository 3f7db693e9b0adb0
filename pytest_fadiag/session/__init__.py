"""The pytest side of an audit; imported when something is audited, so that a run without one pays nothing."""
