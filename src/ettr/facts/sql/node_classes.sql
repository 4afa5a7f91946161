-- One row is a node that attempts held, or of an inventory, in one of its lives: from from_us up to to_us.
-- A node has two where attempts held one type of GPU on it, and later only another.
-- has_gpus: by the inventory, else by what attempts held of it; true where neither says. A share of an
-- attempt on several nodes does not decide where attempts on it alone held none.
-- gpu_type: as the inventory says, else as attempts held it, else that of its partitions, where these have
-- but one; null where none is known. What attempts held goes before an inventory in the same words.
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
FROM classes c LEFT JOIN placed p ON c.cluster = p.cluster AND c.node = p.node
