-- One row is a selected failure on any node, as in all_failures.sql.
SELECT f.* FROM all_failures f JOIN asked_ends a ON f.attempt_id = a.attempt_id
