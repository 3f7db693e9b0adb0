"""Recording and guarding inside the training loops of other packages."""
