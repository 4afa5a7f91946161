-- One row is a chosen attempt and the node-time that it ran.
-- belongs: it counts as an attempt; the others add time alone. named: the log names its nodes.
-- n_held: its rows of the allocations, null without any.
-- node_s: node-seconds; the sum over its nodes where they are named, else their number times its
-- runtime; null where neither is known.
WITH held_by AS (
  SELECT attempt_id, sum(elapsed_s) AS held_s, count(*) AS n_held FROM held GROUP BY attempt_id)
SELECT c.attempt_id, c.start_us, c.end_us, c.elapsed_s, c.n_nodes, c.n_gpus, h.n_held, c.belongs,
       h.held_s IS NOT NULL AS named,
       coalesce(h.held_s, c.parts_node_s, c.elapsed_s * c.n_nodes) AS node_s
FROM chosen c LEFT JOIN held_by h ON c.attempt_id = h.attempt_id
