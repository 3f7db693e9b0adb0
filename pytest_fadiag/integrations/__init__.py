"""Recording and guarding inside the training loops of other packages; each module needs the package it is named after."""
