-- One row is what a chosen attempt ran on a node that was claimed to be a lemon, and its size.
-- keep: no
SELECT e.cluster, e.node, e.start_us, e.elapsed_s, c.n_gpus, c.n_nodes
FROM exposure_nodes e
JOIN claimed_nodes n ON e.cluster = n.cluster AND e.node = n.node
LEFT JOIN chosen c ON e.attempt_id = c.attempt_id
