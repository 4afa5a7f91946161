-- One row is a node, and what the chosen attempts ran on it, over the whole of their time.
-- elapsed_s: time that they ran on it, null where none ran; span_s: from start to end, in whole
-- seconds each, of those that ran and ended. first_us: when the first began; last_us: when the last
-- ended; goes_on: one has not ended.
-- multi, single: attempts of several nodes, or of it alone, that ended as NODE_FAIL; alone: all of
-- it alone.
WITH ended AS (
  SELECT attempt_id, coalesce(n_nodes = 1, FALSE) AS alone,
         coalesce(state = 'NODE_FAIL', FALSE) AS failed
  FROM chosen),
met AS (
  SELECT a.cluster, a.node, a.start_us, a.end_us, a.elapsed_s, e.alone, e.failed,
         coalesce(a.elapsed_s > 0, FALSE) AS ran,
         a.end_us // 1000000 - a.start_us // 1000000 AS span_s
  FROM allocations a JOIN ended e ON a.attempt_id = e.attempt_id
  WHERE a.node IS NOT NULL)
SELECT cluster, node,
       sum(CASE WHEN ran THEN elapsed_s END) AS elapsed_s,
       sum(CASE WHEN ran AND span_s > 0 THEN span_s END) AS span_s,
       min(start_us) AS first_us, max(end_us) AS last_us,
       max(CASE WHEN start_us IS NOT NULL AND end_us IS NULL THEN 1 ELSE 0 END) AS goes_on,
       sum(CASE WHEN failed AND NOT alone THEN 1 ELSE 0 END) AS multi,
       sum(CASE WHEN failed AND alone THEN 1 ELSE 0 END) AS single,
       sum(CASE WHEN alone THEN 1 ELSE 0 END) AS alone
FROM met GROUP BY cluster, node
