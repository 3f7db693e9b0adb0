"""Plain numbers to findings and verdicts: no torch, no numpy, no pytest."""
