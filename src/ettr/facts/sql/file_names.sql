-- One row is an ingested file: its key and its name.
-- keep: no
SELECT file_id, name FROM files
