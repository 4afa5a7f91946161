-- One row is an ingested file: its key and its name.
SELECT file_id, name FROM files
