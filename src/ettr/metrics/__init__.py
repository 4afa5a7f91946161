"""What the tables say: one file for each metric, tables in, small frozen results out."""
