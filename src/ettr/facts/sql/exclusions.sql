-- One row is an attempt whose owner named nodes to keep off, as a list of nodes.
-- keep: no
SELECT cluster, "user", job_id, excluded_nodes, submit_us
FROM attempts WHERE excluded_nodes IS NOT NULL
