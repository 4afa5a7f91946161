-- One row is a node on a UTC day on which a state of it began: n_rows.
SELECT cluster, node, CAST(floor(start_us / 86400000000.0) AS BIGINT) AS day, count(*) AS n_rows
FROM node_states WHERE node IS NOT NULL
GROUP BY cluster, node, CAST(floor(start_us / 86400000000.0) AS BIGINT)
