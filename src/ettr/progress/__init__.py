"""The record of one training run: events, line codec, recorder, split of the wall clock."""
