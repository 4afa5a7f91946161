"""Who belongs to a group, and the process group that it forms."""
