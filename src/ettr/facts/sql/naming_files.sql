-- One row is a cluster that a file of jobs, nodes or node states names.
-- keep: no
SELECT DISTINCT cluster, file_id FROM raw_attempts
UNION
SELECT DISTINCT cluster, file_id FROM raw_nodes
UNION
SELECT DISTINCT cluster, file_id FROM raw_node_states
