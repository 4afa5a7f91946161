-- One row is a node of an attempt that a failed node ended, in all of the logs. end_us: its end.
-- keep: no
SELECT h.attempt_id, h.cluster, h.node, e.end_us
FROM interrupted_held h JOIN all_endings e ON h.attempt_id = e.attempt_id
WHERE e.node_failed AND h.node IS NOT NULL
