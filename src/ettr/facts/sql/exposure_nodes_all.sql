-- One row is a node of a chosen attempt, with its time there; n_nodes is 1. An attempt that names no
-- node has one row, with node null and n_nodes its number of nodes.
-- keep: view
WITH named AS (
  SELECT cluster, node, attempt_id, start_us, elapsed_s, CAST(1 AS BIGINT) AS n_nodes
  FROM held WHERE attempt_id IN (SELECT attempt_id FROM chosen)),
counted AS (
  SELECT cluster, CAST(NULL AS VARCHAR) AS node, attempt_id, start_us, elapsed_s, n_nodes
  FROM chosen
  WHERE elapsed_s > 0 AND n_nodes > 0 AND attempt_id NOT IN (SELECT attempt_id FROM held))
SELECT cluster, node, attempt_id, start_us, elapsed_s, n_nodes FROM named
UNION ALL
SELECT cluster, node, attempt_id, start_us, elapsed_s, n_nodes FROM counted
