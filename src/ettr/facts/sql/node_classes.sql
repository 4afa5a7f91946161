-- One row is a node that attempts held. has_gpus: by the inventory, or by what any attempt held of it; true
-- where neither says. gpu_type: of the inventory, null where it names none.
WITH ran AS (
  SELECT cluster, node, max(n_gpus) AS most_gpus, max(CASE WHEN n_gpus IS NULL THEN 1 ELSE 0 END) AS unsaid
  FROM allocations GROUP BY cluster, node)
SELECT r.cluster, r.node, n.gpu_type,
       coalesce(n.n_gpus > 0, FALSE) OR coalesce(r.most_gpus > 0, FALSE)
         OR (r.unsaid = 1 AND n.n_gpus IS NULL) AS has_gpus
FROM ran r LEFT JOIN nodes n ON r.cluster = n.cluster AND r.node = n.node
