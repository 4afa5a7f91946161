-- One row is a node, as in node_jobs_joined.sql, where the node lists of all attempts say all that
-- they held: no join of all, and the list of an attempt on one node is that node's name.
-- keep: no
WITH times AS (
  SELECT cluster, node,
         sum(CASE WHEN elapsed_s > 0 THEN elapsed_s END) AS elapsed_s,
         sum(CASE WHEN elapsed_s > 0 AND end_us // 1000000 > start_us // 1000000
                  THEN end_us // 1000000 - start_us // 1000000 END) AS span_s,
         min(start_us) AS first_us, max(end_us) AS last_us,
         max(CASE WHEN start_us IS NOT NULL AND end_us IS NULL THEN 1 ELSE 0 END) AS goes_on
  FROM allocations WHERE node IS NOT NULL GROUP BY cluster, node),
singles AS (
  SELECT cluster, node_list AS node, count(*) AS alone,
         sum(CASE WHEN state = 'NODE_FAIL' THEN 1 ELSE 0 END) AS single
  FROM attempts WHERE n_nodes = 1 AND node_list IS NOT NULL GROUP BY cluster, node_list),
multis AS (
  SELECT h.cluster, h.node, count(*) AS multi
  FROM node_fail_held h WHERE h.n_nodes IS NULL OR h.n_nodes <> 1 GROUP BY h.cluster, h.node)
SELECT t.cluster, t.node, t.elapsed_s, t.span_s, t.first_us, t.last_us, t.goes_on,
       coalesce(m.multi, 0) AS multi, coalesce(s.single, 0) AS single, coalesce(s.alone, 0) AS alone
FROM times t
LEFT JOIN singles s ON t.cluster = s.cluster AND t.node = s.node
LEFT JOIN multis m ON t.cluster = m.cluster AND t.node = m.node
