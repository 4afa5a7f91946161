"""The parts of `training_kills.py`: real ranks, killed from outside on a Poisson schedule."""
