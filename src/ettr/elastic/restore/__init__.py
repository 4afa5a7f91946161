"""Bring a newly formed group to one state on which all ranks agree."""
