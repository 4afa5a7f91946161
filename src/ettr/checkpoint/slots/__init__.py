"""Slot files: their format, who owns them, how they are written and read."""
