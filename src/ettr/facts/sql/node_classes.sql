-- One row is a node that attempts held. has_gpus: by the inventory, else by what attempts held of it; true
-- where neither says. A share of an attempt on several nodes does not decide where attempts on it alone held
-- none. gpu_type: of the inventory, null where it names none.
WITH ran AS (
  SELECT cluster, node, max(n_gpus) AS most_gpus, min(n_gpus) AS least_gpus,
         max(CASE WHEN n_gpus IS NULL THEN 1 ELSE 0 END) AS unsaid
  FROM allocations GROUP BY cluster, node),
doubtful AS (SELECT cluster, node FROM ran WHERE most_gpus > 0 AND least_gpus = 0),
alone AS (
  SELECT a.cluster, a.node, max(a.n_gpus) AS most_gpus
  FROM allocations a
  JOIN doubtful d ON a.cluster = d.cluster AND a.node = d.node
  JOIN attempts t ON a.attempt_id = t.attempt_id
  WHERE t.n_nodes = 1 GROUP BY a.cluster, a.node)
SELECT r.cluster, r.node, n.gpu_type,
       CASE WHEN n.n_gpus IS NOT NULL THEN n.n_gpus > 0
            ELSE coalesce(coalesce(o.most_gpus, r.most_gpus) > 0, FALSE) OR r.unsaid = 1 END AS has_gpus
FROM ran r
LEFT JOIN alone o ON r.cluster = o.cluster AND r.node = o.node
LEFT JOIN nodes n ON r.cluster = n.cluster AND r.node = n.node
