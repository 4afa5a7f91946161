-- One row is a chosen attempt that held a node with GPUs; where no log names its nodes, one that held GPUs
-- or of which it is not known. gpu_type: of its nodes, the first by name; null where none is known.
WITH on_nodes AS (
  SELECT h.attempt_id, max(CASE WHEN c.has_gpus THEN 1 ELSE 0 END) AS any_gpus, min(c.gpu_type) AS gpu_type
  FROM held h JOIN node_classes c ON h.cluster = c.cluster AND h.node = c.node
    AND coalesce(h.start_us, 0) >= c.from_us AND coalesce(h.start_us, 0) < c.to_us
  GROUP BY h.attempt_id)
SELECT t.attempt_id, o.gpu_type
FROM chosen t LEFT JOIN on_nodes o ON t.attempt_id = o.attempt_id
WHERE coalesce(o.any_gpus = 1, coalesce(t.n_gpus > 0, TRUE))
