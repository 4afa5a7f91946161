-- One row: node-seconds of all attempts, and of those with GPUs; who does not say its nodes had one.
-- keep: no
WITH timed AS (
  SELECT n_gpus, coalesce(parts_node_s, elapsed_s * coalesce(n_nodes, 1)) AS node_s FROM all_attempts)
SELECT sum(node_s) AS all_s, sum(CASE WHEN n_gpus > 0 THEN node_s END) AS with_gpus_s FROM timed
