-- One row is a cluster in a stored table (table_name); cluster: null where rows name none.
-- n_rows: how many rows.
-- keep: no
SELECT 'attempts' AS table_name, cluster, count(*) AS n_rows FROM attempts GROUP BY cluster
UNION ALL
SELECT 'events' AS table_name, cluster, count(*) AS n_rows FROM events GROUP BY cluster
UNION ALL
SELECT 'node_states' AS table_name, cluster, count(*) AS n_rows FROM node_states GROUP BY cluster
UNION ALL
SELECT 'nodes' AS table_name, cluster, count(*) AS n_rows FROM nodes GROUP BY cluster
UNION ALL
SELECT 'progress' AS table_name, cluster, count(*) AS n_rows FROM progress GROUP BY cluster
UNION ALL
SELECT 'log_days' AS table_name, cluster, count(*) AS n_rows FROM log_days GROUP BY cluster
UNION ALL
SELECT 'incidents' AS table_name, cluster, count(*) AS n_rows FROM incidents GROUP BY cluster
