-- One row is a selected interruption of an attempt that held an asked node, as in all_endings.sql.
SELECT e.*
FROM all_endings e JOIN asked_ends a ON e.attempt_id = a.attempt_id
JOIN asked_shares s ON e.attempt_id = s.attempt_id
