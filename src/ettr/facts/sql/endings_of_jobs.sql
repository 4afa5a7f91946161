-- One row is a selected interruption on any node, as in all_endings.sql.
SELECT e.* FROM all_endings e JOIN asked_ends a ON e.attempt_id = a.attempt_id
