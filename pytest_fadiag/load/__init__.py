"""What an audit reads: checkpoints, networks, data and controls."""
