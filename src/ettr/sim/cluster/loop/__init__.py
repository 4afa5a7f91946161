"""The jobs of a large cluster as one compiled loop over arrays; the same tables as the objects'."""
