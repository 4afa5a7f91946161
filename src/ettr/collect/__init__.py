"""What to run on a site so that its logs of a period lie in files: planned, printed, or run."""
