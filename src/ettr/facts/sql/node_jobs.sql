-- What ran on each node, over the whole of its time.

-- One row is a node of an attempt that the scheduler ended as NODE_FAIL, in all of the logs.
-- end_us: when the attempt ended; end_file: the file that says so; n_nodes: its nodes.
CREATE TABLE node_fail_held AS
WITH failed AS (
  SELECT attempt_id, n_nodes, end_us, file_id AS end_file FROM attempts WHERE state = 'NODE_FAIL')
SELECT a.attempt_id, a.cluster, a.node, f.n_nodes, f.end_us, f.end_file
FROM allocations a JOIN failed f ON a.attempt_id = f.attempt_id
WHERE a.node IS NOT NULL;

-- One row is a node, and what the chosen attempts ran on it, over the whole of their time.
-- elapsed_s: time that they ran on it, null where none ran; span_s: from start to end, in whole
-- seconds each, of those that ran and ended. first_us: when the first began; last_us: when the last
-- ended; goes_on: one has not ended.
-- multi, single: attempts of several nodes, or of it alone, that ended as NODE_FAIL; alone: all of
-- it alone.
CREATE TABLE node_jobs_joined AS
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
FROM met GROUP BY cluster, node;

-- One row is a node, as in node_jobs_joined, where the node lists of all attempts say all that
-- they held: no join of all, and the list of an attempt on one node is that node's name.
-- keep: no
CREATE TABLE node_jobs_listed AS
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
LEFT JOIN multis m ON t.cluster = m.cluster AND t.node = m.node;
