-- One row is a node of the fleet with rows of a kind of logs, errors or states, in the period.
-- keep: no
WITH heard AS (
  SELECT 'errors' AS kind, cluster, node, day FROM error_days
  UNION ALL
  SELECT 'states' AS kind, cluster, node, day FROM state_days)
SELECT DISTINCT h.kind, h.cluster, h.node
FROM heard h JOIN fleet_days f ON h.cluster = f.cluster AND h.node = f.node
WHERE h.day >= $first_day AND h.day <= $last_day
