"""Copies of a shard in other places of memory: the next rank's, and shared memory."""
