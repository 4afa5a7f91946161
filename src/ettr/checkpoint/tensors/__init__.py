"""The state of a run as local shards of global tensors."""
