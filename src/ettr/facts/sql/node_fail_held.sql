-- One row is a node of an attempt that the scheduler ended as NODE_FAIL, in all of the logs.
-- end_us: when the attempt ended; end_file: the file that says so; n_nodes: its nodes.
WITH failed AS (
  SELECT attempt_id, n_nodes, end_us, file_id AS end_file FROM attempts WHERE state = 'NODE_FAIL')
SELECT a.attempt_id, a.cluster, a.node, f.n_nodes, f.end_us, f.end_file
FROM allocations a JOIN failed f ON a.attempt_id = f.attempt_id
WHERE a.node IS NOT NULL
