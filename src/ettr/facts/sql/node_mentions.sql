-- One row is a node that a table names. table_name: the table.
-- n_gpus: of allocations, the most GPUs that one job held on it; longest_s: its longest one.
SELECT 'allocations' AS table_name, cluster, node, max(n_gpus) AS n_gpus, max(elapsed_s) AS longest_s
FROM allocations WHERE node IS NOT NULL GROUP BY cluster, node
UNION ALL
SELECT DISTINCT 'node_states' AS table_name, cluster, node,
       CAST(NULL AS DOUBLE) AS n_gpus, CAST(NULL AS DOUBLE) AS longest_s
FROM node_states WHERE node IS NOT NULL
UNION ALL
SELECT DISTINCT 'log_days' AS table_name, cluster, node,
       CAST(NULL AS DOUBLE) AS n_gpus, CAST(NULL AS DOUBLE) AS longest_s
FROM log_days WHERE node IS NOT NULL
