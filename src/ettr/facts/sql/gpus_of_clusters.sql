-- One row is a cluster with attempts that list a number of GPUs. is_unknown: every such attempt lists
-- 0, which may be for want of accounting: its inventory, if any counts GPUs, has some.
-- keep: no
WITH of_jobs AS (
  SELECT cluster, max(n_gpus) AS most FROM named_attempts WHERE n_gpus IS NOT NULL GROUP BY cluster),
of_nodes AS (
  SELECT cluster, max(n_gpus) AS most FROM named_nodes WHERE n_gpus IS NOT NULL GROUP BY cluster)
SELECT j.cluster, j.most = 0 AND coalesce(n.most <> 0, TRUE) AS is_unknown
FROM of_jobs j LEFT JOIN of_nodes n ON j.cluster = n.cluster
