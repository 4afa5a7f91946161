-- One row is a class of nodes: has_gpus, and gpu_type, null where it is not known and without GPUs.
-- node_s: node-seconds that chosen attempts ran there; failures: selected ones, of the class of the node
-- that is blamed, else of the attempt.
-- keep: no
WITH ran AS (
  SELECT coalesce(c.has_gpus, g.attempt_id IS NOT NULL) AS has_gpus, c.gpu_type,
         e.elapsed_s * e.n_nodes AS node_s, 0 AS failures
  FROM exposure_nodes e
  LEFT JOIN node_classes c ON e.cluster = c.cluster AND e.node = c.node
    AND coalesce(e.start_us, 0) >= c.from_us AND coalesce(e.start_us, 0) < c.to_us
  LEFT JOIN gpu_attempts g ON e.attempt_id = g.attempt_id
  UNION ALL
  SELECT coalesce(c.has_gpus, g.attempt_id IS NOT NULL), coalesce(c.gpu_type, g.gpu_type),
         CAST(0.0 AS DOUBLE), 1
  FROM failures f
  LEFT JOIN node_classes c ON f.cluster = c.cluster AND f.node = c.node
    AND coalesce(f.start_us, 0) >= c.from_us AND coalesce(f.start_us, 0) < c.to_us
  LEFT JOIN gpu_attempts g ON f.attempt_id = g.attempt_id)
SELECT has_gpus, CASE WHEN has_gpus THEN gpu_type END AS gpu_type,
       sum(node_s) AS node_s, CAST(sum(failures) AS BIGINT) AS failures
FROM ran GROUP BY has_gpus, CASE WHEN has_gpus THEN gpu_type END
