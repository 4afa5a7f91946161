-- One row is a chosen attempt, as in exposure_joined.sql, where the node list of each attempt says all that it held: no join.
SELECT attempt_id, start_us, end_us, elapsed_s, n_nodes, n_gpus, belongs,
       CASE WHEN node_list IS NOT NULL AND n_nodes > 0 THEN n_nodes END AS n_held,
       coalesce(node_list IS NOT NULL AND n_nodes > 0 AND elapsed_s IS NOT NULL, FALSE) AS named,
       coalesce(CASE WHEN node_list IS NOT NULL AND n_nodes > 0 THEN elapsed_s * n_nodes END,
                parts_node_s, elapsed_s * n_nodes) AS node_s
FROM chosen
