-- One row is an attempt that began on a black hole (black_hole_days) between its first early end and its
-- last. early: it ended FAILED within within_s of its start. counted: it is a failure already.
WITH began AS (
  SELECT h.hole, h.cluster, h.node, h.within_s, t.attempt_id, t."user", t.start_us, t.end_us, t.n_gpus, t.n_nodes,
         t.state = 'FAILED' AND t.elapsed_s <= h.within_s AS early
  FROM black_hole_days h
  JOIN allocations a ON h.cluster = a.cluster AND h.node = a.node
  JOIN attempts t ON a.attempt_id = t.attempt_id
  WHERE t.start_us >= h.from_us AND t.start_us < h.to_us AND t.end_us IS NOT NULL),
lasting AS (
  SELECT hole, min(start_us) AS first_us, max(end_us) AS last_us FROM began WHERE early GROUP BY hole)
SELECT b.hole, b.cluster, b.node, b.within_s, b.attempt_id, b."user", b.start_us, b.end_us, b.n_gpus, b.n_nodes, b.early,
       f.attempt_id IS NOT NULL AS counted
FROM began b JOIN lasting l ON b.hole = l.hole
LEFT JOIN all_failures f ON b.attempt_id = f.attempt_id
WHERE b.start_us >= l.first_us AND b.start_us <= l.last_us
