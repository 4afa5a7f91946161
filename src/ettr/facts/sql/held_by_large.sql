-- One row is a chosen node that one of large_attempts.sql held.
-- keep: no
SELECT attempt_id, node FROM held
WHERE node IS NOT NULL AND attempt_id IN (SELECT attempt_id FROM large_attempts)
