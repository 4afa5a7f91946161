"""Checks of nodes: what they find before jobs fail, and which are worth their minutes now."""
