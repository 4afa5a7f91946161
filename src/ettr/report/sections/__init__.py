"""Results -> sections, one file for each part of the report."""
