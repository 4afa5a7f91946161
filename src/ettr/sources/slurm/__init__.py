"""Slurm: accounting, node events, the controller's log, inventory."""
