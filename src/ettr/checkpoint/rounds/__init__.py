"""A round of saving: which blocks, within which budget, written by which thread."""
