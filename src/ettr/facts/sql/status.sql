-- One row is an end state of the chosen attempts; those that have not ended stand as they are.
-- gpu_s, node_s: seconds of chosen GPUs and nodes held; null where some ran and none says how many.
-- keep: no
WITH counted AS (
  SELECT state, belongs, coalesce(elapsed_s > 0, FALSE) AS ran,
         coalesce(parts_gpu_s, elapsed_s * n_gpus) * node_share AS gpu_s,
         coalesce(parts_node_s, elapsed_s * n_nodes) * node_share AS node_s
  FROM chosen)
SELECT state, sum(CASE WHEN belongs THEN 1 ELSE 0 END) AS attempts,
       CASE WHEN max(CASE WHEN ran THEN 1 ELSE 0 END) > 0 THEN sum(CASE WHEN ran THEN gpu_s END)
            ELSE 0.0 END AS gpu_s,
       CASE WHEN max(CASE WHEN ran THEN 1 ELSE 0 END) > 0 THEN sum(CASE WHEN ran THEN node_s END)
            ELSE 0.0 END AS node_s
FROM counted GROUP BY state
