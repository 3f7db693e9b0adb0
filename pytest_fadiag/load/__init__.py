"""Files: checkpoints, networks, test data, controls, training logs."""
