"""The pytest side of an audit: settings, collection, fixtures, cache and the terminal summary."""
