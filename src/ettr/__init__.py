"""ettr: where the GPU hours of an ML cluster go, and how to win them back."""

__version__ = "0.1.0"
