-- One row: attempts and jobs of the selection, and what they held.
-- jobs: lineages (a requeue is the same job), without those that were cancelled before they ran.
-- ran: attempts that ran, as the log has them: parts of a heterogeneous job apart.
-- cpu_s, node_s, gpu_s: seconds held; null where none of those names its count.
-- keep: no
WITH lineages AS (
  SELECT DISTINCT cluster, job_id, "user", name FROM chosen
  WHERE belongs AND NOT (state = 'CANCELLED' AND coalesce(elapsed_s, 0.0) = 0)),
counts AS (
  SELECT count(*) AS all_rows, sum(CASE WHEN belongs THEN 1 ELSE 0 END) AS attempts FROM chosen),
held_by AS (
  SELECT count(*) AS ran, sum(elapsed_s * node_share * n_cpus) AS cpu_s,
         sum(coalesce(parts_node_s, elapsed_s * n_nodes) * node_share) AS node_s,
         sum(coalesce(parts_gpu_s, elapsed_s * n_gpus) * node_share) AS gpu_s
  FROM accounted WHERE elapsed_s > 0),
lineage_count AS (SELECT count(*) AS jobs FROM lineages)
SELECT jobs, coalesce(attempts, 0) AS attempts, ran, cpu_s, node_s, gpu_s
FROM lineage_count CROSS JOIN counts CROSS JOIN held_by
