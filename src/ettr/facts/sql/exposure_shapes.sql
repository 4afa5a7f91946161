-- One row is a number of GPUs and of nodes that chosen attempts had, began or not.
-- attempts: those that count; rows: with those that add hours alone. job_s: seconds run. node_s: node-
-- seconds. known_node_s, known_s: of those whose nodes are known; without_nodes: the others. begin_us,
-- end_us: from when to when any of them did; is_open: one goes on.
-- keep: no
WITH judged AS (
  SELECT n_gpus, n_nodes, start_us, end_us, node_s, belongs, coalesce(elapsed_s, 0.0) AS run_s,
         coalesce(node_s > 0 OR elapsed_s = 0, FALSE) AS is_known
  FROM exposure)
SELECT n_gpus, n_nodes, start_us IS NOT NULL AS began, count(*) AS n_rows,
       sum(CASE WHEN belongs THEN 1 ELSE 0 END) AS attempts, sum(run_s) AS job_s,
       sum(node_s) AS node_s, sum(CASE WHEN is_known THEN node_s END) AS known_node_s,
       sum(CASE WHEN is_known THEN run_s END) AS known_s,
       sum(CASE WHEN is_known THEN 0 ELSE 1 END) AS without_nodes, min(start_us) AS begin_us,
       max(end_us) AS end_us, max(CASE WHEN end_us IS NULL THEN 1 ELSE 0 END) = 1 AS is_open
FROM judged GROUP BY n_gpus, n_nodes, start_us IS NOT NULL
