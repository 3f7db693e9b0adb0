"""Where the residual stream of a network is, and the hooks that show it."""
