-- Nodes: their types of GPU, and which tables name them.

-- One row is a node that attempts held, or of an inventory, in one of its lives: from from_us up to to_us.
-- A node has two where attempts held one type of GPU on it, and later only another.
-- has_gpus: by the inventory, else by what attempts held of it; true where neither says. A share of an
-- attempt on several nodes does not decide where attempts on it alone held none.
-- gpu_type: as the inventory says, else as attempts held it, else that of its partitions, where these have
-- but one; null where none is known. What attempts held goes before an inventory in the same words.
CREATE TABLE node_classes AS
WITH ran AS (
  SELECT a.cluster, a.node, t."partition", CASE WHEN t.gpu_type NOT LIKE '%,%' THEN t.gpu_type END AS gpu_type,
         max(a.n_gpus) AS most_gpus, min(a.n_gpus) AS least_gpus,
         max(CASE WHEN t.n_nodes = 1 THEN a.n_gpus END) AS alone_gpus,
         max(CASE WHEN a.n_gpus IS NULL THEN 1 ELSE 0 END) AS unsaid,
         min(a.start_us) AS first_us, max(a.start_us) AS last_us
  FROM allocations a LEFT JOIN attempts t ON a.attempt_id = t.attempt_id
  GROUP BY a.cluster, a.node, t."partition", CASE WHEN t.gpu_type NOT LIKE '%,%' THEN t.gpu_type END),
held AS (
  SELECT cluster, node, max(most_gpus) AS most_gpus, min(least_gpus) AS least_gpus,
         max(alone_gpus) AS alone_gpus, max(unsaid) AS unsaid
  FROM ran GROUP BY cluster, node),
typed AS (
  SELECT cluster, node, gpu_type, min(first_us) AS first_us, max(last_us) AS last_us
  FROM ran WHERE gpu_type IS NOT NULL GROUP BY cluster, node, gpu_type),
ordered AS (
  SELECT cluster, node, gpu_type, first_us, last_us,
         lag(last_us) OVER (PARTITION BY cluster, node ORDER BY first_us, gpu_type) AS before_us,
         lead(first_us) OVER (PARTITION BY cluster, node ORDER BY first_us, gpu_type) AS next_us
  FROM typed),
at_once AS (  -- GPUs of two types in one node at a time
  SELECT DISTINCT cluster, node FROM ordered WHERE before_us >= first_us),
lives AS (
  SELECT o.cluster, o.node, o.gpu_type, CASE WHEN o.before_us IS NULL THEN 0 ELSE o.first_us END AS from_us,
         o.next_us AS to_us
  FROM ordered o LEFT JOIN at_once m ON o.cluster = m.cluster AND o.node = m.node
  WHERE m.node IS NULL),
worded AS (SELECT DISTINCT cluster, gpu_type FROM typed),
known AS (
  SELECT cluster, node FROM held UNION SELECT cluster, node FROM nodes),
classes AS (
  SELECT k.cluster, k.node, coalesce(l.from_us, 0) AS from_us, l.to_us,
         CASE WHEN n.gpu_type IS NOT NULL AND w.gpu_type IS NULL AND coalesce(l.from_us, 0) = 0
               AND l.to_us IS NULL
              THEN n.gpu_type ELSE coalesce(l.gpu_type, n.gpu_type) END AS gpu_type,
         CASE WHEN n.n_gpus IS NOT NULL THEN n.n_gpus > 0
              WHEN h.node IS NULL THEN TRUE
              WHEN h.most_gpus > 0 AND h.least_gpus = 0 AND h.alone_gpus IS NOT NULL
              THEN h.alone_gpus > 0 OR h.unsaid = 1
              ELSE coalesce(h.most_gpus > 0, FALSE) OR h.unsaid = 1 END AS has_gpus
  FROM known k
  LEFT JOIN held h ON k.cluster = h.cluster AND k.node = h.node
  LEFT JOIN nodes n ON k.cluster = n.cluster AND k.node = n.node
  LEFT JOIN lives l ON k.cluster = l.cluster AND k.node = l.node
  LEFT JOIN worded w ON n.cluster = w.cluster AND n.gpu_type = w.gpu_type),
places AS (SELECT DISTINCT cluster, node, "partition" FROM ran WHERE "partition" IS NOT NULL),
of_partitions AS (
  SELECT p.cluster, p."partition", min(c.gpu_type) AS gpu_type
  FROM places p JOIN classes c ON p.cluster = c.cluster AND p.node = c.node
  WHERE c.has_gpus AND c.gpu_type IS NOT NULL
  GROUP BY p.cluster, p."partition" HAVING count(DISTINCT c.gpu_type) = 1),
placed AS (
  SELECT p.cluster, p.node, min(coalesce(o.gpu_type, m.gpu_type)) AS gpu_type
  FROM places p
  LEFT JOIN of_partitions o ON p.cluster = o.cluster AND p."partition" = o."partition"
  LEFT JOIN partition_models m ON p.cluster = m.cluster AND p."partition" = m."partition"
  GROUP BY p.cluster, p.node HAVING count(DISTINCT coalesce(o.gpu_type, m.gpu_type)) = 1)
SELECT c.cluster, c.node, c.from_us, coalesce(c.to_us, 253402300800000000) AS to_us, c.has_gpus,
       CASE WHEN c.has_gpus THEN coalesce(c.gpu_type, p.gpu_type) END AS gpu_type
FROM classes c LEFT JOIN placed p ON c.cluster = p.cluster AND c.node = p.node;

-- One row is a node that a table names. table_name: the table.
-- n_gpus: of allocations, the most GPUs that one job held on it; longest_s: its longest one.
-- first_us, last_us: the first and the last beginning of its rows, null where none is known; n_rows: how many.
CREATE TABLE node_mentions AS
SELECT 'allocations' AS table_name, cluster, node, max(n_gpus) AS n_gpus, max(elapsed_s) AS longest_s,
       min(start_us) AS first_us, max(start_us) AS last_us, count(*) AS n_rows
FROM allocations WHERE node IS NOT NULL GROUP BY cluster, node
UNION ALL
SELECT 'node_states' AS table_name, cluster, node,
       CAST(NULL AS DOUBLE) AS n_gpus, CAST(NULL AS DOUBLE) AS longest_s,
       min(start_us) AS first_us, max(start_us) AS last_us, count(*) AS n_rows
FROM node_states WHERE node IS NOT NULL GROUP BY cluster, node
UNION ALL
SELECT 'log_days' AS table_name, cluster, node,
       CAST(NULL AS DOUBLE) AS n_gpus, CAST(NULL AS DOUBLE) AS longest_s,
       min(day_us) AS first_us, max(day_us) AS last_us, count(*) AS n_rows
FROM log_days WHERE node IS NOT NULL GROUP BY cluster, node;

-- One row: whether the allocations say no more than the lists of nodes of the attempts.
-- no_number: attempts with a list and without a number of nodes. unheld: attempts on one node whose list
-- is no name of a node that is held.
-- listed, held: rows that the lists ask for, and rows of the allocations; *_low, *_high: sums of both
-- halves of their hashes, with the attempt and its times. One row too many or too few, or of other
-- times, changes both; which nodes the rows name is not compared.
-- hash is DuckDB's, of 64 bits.
-- keep: no
CREATE TABLE node_lists AS
WITH hashed AS (
  SELECT CASE WHEN n_nodes BETWEEN 0 AND 1000000000 THEN n_nodes END AS n_nodes,
         hash(attempt_id, start_us, end_us, elapsed_s) AS code
  FROM attempts WHERE node_list IS NOT NULL),
asked_for AS (
  SELECT count(*) - count(n_nodes) AS no_number, sum(n_nodes) AS listed,
         sum(CAST(code & 4294967295 AS BIGINT) * n_nodes) AS listed_low,
         sum(CAST(code >> 32 AS BIGINT) * n_nodes) AS listed_high
  FROM hashed),
hashed_held AS (SELECT hash(attempt_id, start_us, end_us, elapsed_s) AS code FROM allocations),
there AS (
  SELECT count(*) AS held, sum(CAST(code & 4294967295 AS BIGINT)) AS held_low,
         sum(CAST(code >> 32 AS BIGINT)) AS held_high
  FROM hashed_held),
singles AS (
  SELECT DISTINCT cluster, node_list FROM attempts WHERE n_nodes = 1 AND node_list IS NOT NULL),
unnamed AS (
  SELECT count(*) AS unheld FROM singles s
  LEFT JOIN node_mentions m ON s.cluster = m.cluster AND s.node_list = m.node AND m.table_name = 'allocations'
  WHERE m.node IS NULL)
SELECT no_number, unheld, coalesce(listed, 0) AS listed, coalesce(listed_low, 0) AS listed_low,
       coalesce(listed_high, 0) AS listed_high, held, coalesce(held_low, 0) AS held_low,
       coalesce(held_high, 0) AS held_high
FROM asked_for CROSS JOIN there CROSS JOIN unnamed;

-- One row is a chosen attempt that held a node with GPUs; where no log names its nodes, one that held GPUs
-- or of which it is not known. gpu_type: of its nodes, the first by name; null where none is known.
CREATE TABLE gpu_attempts AS
WITH on_nodes AS (
  SELECT h.attempt_id, max(CASE WHEN c.has_gpus THEN 1 ELSE 0 END) AS any_gpus, min(c.gpu_type) AS gpu_type
  FROM held h JOIN node_classes c ON h.cluster = c.cluster AND h.node = c.node
    AND coalesce(h.start_us, 0) >= c.from_us AND coalesce(h.start_us, 0) < c.to_us
  GROUP BY h.attempt_id)
SELECT t.attempt_id, o.gpu_type
FROM chosen t LEFT JOIN on_nodes o ON t.attempt_id = o.attempt_id
WHERE coalesce(o.any_gpus = 1, coalesce(t.n_gpus > 0, TRUE));

-- One row is a class of nodes: has_gpus, and gpu_type, null where it is not known and without GPUs.
-- node_s: node-seconds that chosen attempts ran there; failures: selected ones, of the class of the node
-- that is blamed, else of the attempt.
-- keep: no
CREATE TABLE class_rates AS
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
FROM ran GROUP BY has_gpus, CASE WHEN has_gpus THEN gpu_type END;
