-- One row is a node and a UTC day (days since 1970) on which attempts of several users, each on this node
-- alone, ended FAILED within 600 s of their start.
-- keep: no
SELECT cluster, node_list AS node, start_us // 86400000000 AS day
FROM attempts
WHERE state = 'FAILED' AND n_nodes = 1 AND node_list IS NOT NULL AND "user" IS NOT NULL
  AND start_us IS NOT NULL AND end_us IS NOT NULL AND elapsed_s <= 600
GROUP BY cluster, node_list, start_us // 86400000000
HAVING count(DISTINCT "user") >= 3 AND count(*) >= 5
