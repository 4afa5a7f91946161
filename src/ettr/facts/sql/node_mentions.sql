-- One row is a node that a table names. table_name: the table.
-- n_gpus: of allocations, the most GPUs that one job held on it; longest_s: its longest one.
-- first_us, last_us: the first and the last beginning of its rows, null where none is known; n_rows: how many.
SELECT 'allocations' AS table_name, cluster, node, max(n_gpus) AS n_gpus, max(elapsed_s) AS longest_s,
       min(start_us) AS first_us, max(start_us) AS last_us, count(*) AS n_rows
FROM allocations WHERE node IS NOT NULL GROUP BY cluster, node
UNION ALL
SELECT 'node_states' AS table_name, cluster, node,
       CAST(NULL AS DOUBLE) AS n_gpus, CAST(NULL AS DOUBLE) AS longest_s,
       min(start_us) AS first_us, max(start_us) AS last_us, count(*) AS n_rows
FROM node_states WHERE node IS NOT NULL GROUP BY cluster, node
UNION ALL
SELECT 'log_days' AS table_name, cluster, node,
       CAST(NULL AS DOUBLE) AS n_gpus, CAST(NULL AS DOUBLE) AS longest_s,
       min(day_us) AS first_us, max(day_us) AS last_us, count(*) AS n_rows
FROM log_days WHERE node IS NOT NULL GROUP BY cluster, node
