"""A network and its test data in, the numbers of one measurement out."""
