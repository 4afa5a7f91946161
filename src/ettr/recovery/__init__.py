"""What to do after a loss: choose a source of state by its measured cost."""
