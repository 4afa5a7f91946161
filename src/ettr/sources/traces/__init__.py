"""Published failure traces."""
