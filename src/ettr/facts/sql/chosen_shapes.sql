-- One row is a number of GPUs and of nodes of chosen attempts that began.
-- n_rows: how many; attempts: those that count; ran: those that ran for any time. gpu_s, node_s: seconds
-- of chosen GPUs and nodes that these held; null where none says how many. job_s: seconds run.
-- keep: no
WITH began AS (
  SELECT n_gpus, n_nodes, belongs, elapsed_s, coalesce(elapsed_s > 0, FALSE) AS ran,
         coalesce(parts_gpu_s, elapsed_s * n_gpus) * node_share AS gpu_s,
         coalesce(parts_node_s, elapsed_s * n_nodes) * node_share AS node_s
  FROM chosen WHERE start_us IS NOT NULL)
SELECT n_gpus, n_nodes, count(*) AS n_rows, sum(CASE WHEN belongs THEN 1 ELSE 0 END) AS attempts,
       sum(CASE WHEN ran THEN 1 ELSE 0 END) AS ran, sum(CASE WHEN ran THEN gpu_s END) AS gpu_s,
       sum(CASE WHEN ran THEN node_s END) AS node_s, coalesce(sum(elapsed_s), 0.0) AS job_s
FROM began GROUP BY n_gpus, n_nodes
