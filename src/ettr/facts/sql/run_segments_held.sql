-- One row is a node that an attempt of run_segments.sql held.
-- keep: no
SELECT attempt_id, node FROM allocations
WHERE node IS NOT NULL AND attempt_id IN (SELECT attempt_id FROM run_segments)
