-- One row is an attempt without an end that is over: more than a day (86,400 s) beyond its limit, or on
-- a node where an attempt that began later, and more than a day before the last time that this one is
-- said to run, holds GPUs that the node has not beside its own. A suspended job leaves its GPUs to others.
-- Of a node without an inventory, both must hold as many as any job ever held on a node of its cluster.
-- node_s: node-seconds that it adds to the exposure, null where they are not known.
-- keep: no
WITH lasting AS (
  SELECT attempt_id, job_id, elapsed_s, time_limit_s,
         coalesce(state = 'SUSPENDED' OR suspended_s > 0, FALSE) AS was_suspended
  FROM attempts WHERE start_us IS NOT NULL AND end_us IS NULL AND elapsed_s > 86400),
listed AS (SELECT cluster, node, max(n_gpus) AS has FROM nodes WHERE n_gpus > 0 GROUP BY cluster, node),
most AS (
  SELECT cluster, max(n_gpus) AS n_gpus FROM node_mentions
  WHERE table_name = 'allocations' GROUP BY cluster),
sizes AS (
  SELECT cluster, node, has, 0 AS whole FROM listed
  UNION ALL
  SELECT m.cluster, m.node, m.n_gpus AS has, m.n_gpus AS whole
  FROM node_mentions m
  JOIN most c ON m.cluster = c.cluster AND m.n_gpus = c.n_gpus
  LEFT JOIN listed l ON m.cluster = l.cluster AND m.node = l.node
  WHERE m.table_name = 'allocations' AND m.n_gpus > 1 AND l.node IS NULL),
theirs AS (
  SELECT a.cluster, a.node, a.attempt_id, a.n_gpus, s.has, s.whole, a.start_us // 1000000 AS began_s,
         a.start_us // 1000000 + a.elapsed_s - 86400 AS last_s
  FROM allocations a
  JOIN lasting l ON a.attempt_id = l.attempt_id
  JOIN sizes s ON a.cluster = s.cluster AND a.node = s.node
  WHERE a.n_gpus > 0 AND a.n_gpus >= s.whole AND NOT l.was_suspended),
displaced AS (
  SELECT DISTINCT t.attempt_id
  FROM theirs t JOIN allocations o ON t.cluster = o.cluster AND t.node = o.node
  WHERE o.n_gpus > 0 AND o.start_us // 1000000 > t.began_s AND o.start_us // 1000000 < t.last_s
    AND t.n_gpus + o.n_gpus > t.has AND o.n_gpus >= t.whole)
SELECT l.job_id, e.node_s
FROM lasting l
JOIN exposure e ON l.attempt_id = e.attempt_id
LEFT JOIN displaced d ON l.attempt_id = d.attempt_id
WHERE d.attempt_id IS NOT NULL OR l.elapsed_s > l.time_limit_s + 86400
ORDER BY l.job_id
