-- One row is a cluster on a UTC day with rows of a kind of logs, errors or states: n_rows.
-- fleet_nodes: how many nodes of the fleet were heard in their time in service.
-- keep: no
WITH heard AS (
  SELECT 'errors' AS kind, cluster, node, day, n_rows FROM error_days
  UNION ALL
  SELECT 'states' AS kind, cluster, node, day, n_rows FROM state_days)
SELECT h.kind, h.cluster, h.day, CAST(sum(h.n_rows) AS BIGINT) AS n_rows,
       sum(CASE WHEN h.day >= f.first_day AND h.day <= f.last_day THEN 1 ELSE 0 END) AS fleet_nodes
FROM heard h LEFT JOIN fleet_days f ON h.cluster = f.cluster AND h.node = f.node
GROUP BY h.kind, h.cluster, h.day
