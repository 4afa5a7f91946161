-- One row is a node that an interrupted attempt held, in all of the logs. kind, attempt_end_us: of the
-- attempt. Kept: a dozen questions ask which nodes failures were on, and each would look through all.
SELECT a.cluster, a.node, a.attempt_id, a.start_us, a.end_us, a.elapsed_s, e.kind, e.end_us AS attempt_end_us
FROM allocations a JOIN all_endings e ON a.attempt_id = e.attempt_id
