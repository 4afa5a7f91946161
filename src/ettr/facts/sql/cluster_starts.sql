-- One row is a cluster with attempts, and how its logs begin; times in whole seconds but for *_us.
-- submit_us, start_us: the first submission and start; null without any.
-- Of attempts that ran for a time, null or 0 where none did: ended, running: how many have an end, and
-- how many none; first_s: when the first ended; last_start_s: when the last began; job_s, node_s: seconds
-- and node-seconds that they ran. early_node_s: node-seconds before first_s.
WITH timed AS (
  SELECT cluster, submit_us, start_us, coalesce(start_us IS NOT NULL AND elapsed_s > 0, FALSE) AS ran,
         start_us // 1000000 AS start_s, end_us // 1000000 AS end_s, elapsed_s,
         coalesce(n_nodes, 1) AS n_nodes,
         coalesce(parts_node_s, elapsed_s * coalesce(n_nodes, 1)) AS node_s
  FROM all_attempts),
summed AS (
  SELECT cluster, min(submit_us) AS submit_us, min(start_us) AS start_us,
         min(CASE WHEN ran THEN end_s END) AS first_s,
         count(CASE WHEN ran THEN end_s END) AS ended,
         count(CASE WHEN ran AND end_s IS NULL THEN 1 END) AS running,
         max(CASE WHEN ran THEN start_s END) AS last_start_s,
         sum(CASE WHEN ran THEN elapsed_s END) AS job_s,
         sum(CASE WHEN ran THEN node_s END) AS node_s
  FROM timed GROUP BY cluster),
early AS (
  SELECT t.cluster, sum((s.first_s - t.start_s) * t.n_nodes) AS early_node_s
  FROM timed t JOIN summed s ON t.cluster = s.cluster
  WHERE t.ran AND t.start_s < s.first_s GROUP BY t.cluster)
SELECT s.cluster, s.submit_us, s.start_us, s.first_s, s.ended, s.running, s.last_start_s, s.job_s, s.node_s,
       coalesce(e.early_node_s, 0) AS early_node_s
FROM summed s LEFT JOIN early e ON s.cluster = e.cluster
