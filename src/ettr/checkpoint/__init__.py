"""Running checkpoints, slot files and DCP storage."""
