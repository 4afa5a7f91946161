-- Attempts that hung, and those that no log ends.

-- One row is an attempt that probably hung, in all of the logs: it was cancelled, or ran into its time limit, or put
-- itself back into the queue, after a fault on one of its nodes (node), which was then taken out of service
-- for no planned work before $hung_out_us after the end had passed.
-- fault_us: when the fault was first seen in the run, symptom: which; out_us: since when the node was out.
-- last_step_us: the last step that progress records of the attempt, null without any.
CREATE TABLE hung_attempts AS
WITH outs AS (
  SELECT s.cluster, s.node, s.start_us
  FROM node_states s JOIN reasons r ON coalesce(s.reason, '') = r.reason_key
  WHERE s.state IN (SELECT state FROM states_of_outages) AND s.state <> 'MAINT'
    AND NOT (r.planned AND r.reason_key <> '')),
ends AS (
  SELECT c.attempt_id, c.job_id, c.state, c.end_us, c.n_nodes, c.n_gpus, a.cluster, a.node, a.start_us
  FROM attempts c JOIN allocations a ON c.attempt_id = a.attempt_id
  WHERE c.end_us IS NOT NULL AND a.start_us IS NOT NULL
    AND (c.state IN ('CANCELLED', 'TIMEOUT', 'DEADLINE')
         OR (c.state IN ('REQUEUED', 'REQUEUE_HOLD') AND coalesce(c.exit_code > 0, FALSE)))),
near AS (
  SELECT e.attempt_id, e.cluster, e.node, e.start_us, e.end_us, o.start_us AS out_us
  FROM ends e JOIN outs o ON e.cluster = o.cluster AND e.node = o.node
  WHERE o.start_us > e.start_us AND o.start_us <= e.end_us + $hung_out_us),
met AS (
  SELECT n.attempt_id, n.node, n.end_us, n.out_us, s.symptom, s.first_us AS fault_us,
         row_number() OVER (PARTITION BY n.attempt_id ORDER BY s.first_us, s.rank, n.out_us, n.node, s.symptom)
           AS place
  FROM near n JOIN explanatory s ON n.cluster = s.cluster AND n.node = s.node
  WHERE s.fault AND s.first_us > n.start_us AND s.first_us <= n.end_us AND s.first_us <= n.out_us
    AND s."check" <> 'node-state'),
hung AS (
  SELECT m.attempt_id, m.node, m.symptom, m.fault_us, m.out_us, e.cluster, e.job_id, e.state, e.end_us,
         e.n_nodes, e.n_gpus, e.start_us
  FROM met m JOIN ends e ON m.attempt_id = e.attempt_id AND m.node = e.node WHERE m.place = 1),
stepped AS (
  SELECT h.attempt_id, max(p.time_us) AS last_step_us
  FROM hung h JOIN progress p ON h.cluster = p.cluster AND h.job_id = p.job_id
  WHERE p.event = 'step' AND p.time_us >= h.start_us AND p.time_us <= h.end_us
  GROUP BY h.attempt_id)
SELECT h.attempt_id, h.cluster, h.job_id, h.state, h.end_us, h.n_nodes, h.n_gpus, h.node, h.symptom,
       h.fault_us, h.out_us, t.last_step_us
FROM hung h LEFT JOIN stepped t ON h.attempt_id = t.attempt_id
LEFT JOIN all_failures f ON h.attempt_id = f.attempt_id
WHERE f.attempt_id IS NULL AND (t.last_step_us IS NULL OR t.last_step_us <= h.end_us - $hung_silent_us);

-- One row is a selected attempt that probably hung, as in hung_attempts.
-- keep: no
CREATE TABLE hung_runs AS
SELECT h.attempt_id, h.cluster, h.job_id, h.state, h.end_us, h.n_nodes, h.n_gpus, h.node, h.symptom,
       h.fault_us, h.out_us, h.last_step_us
FROM hung_attempts h JOIN chosen c ON h.attempt_id = c.attempt_id
WHERE c.belongs;

-- One row is an attempt without an end that is over: more than a day (86,400 s) beyond its limit, or on
-- a node where an attempt that began later, and more than a day before the last time that this one is
-- said to run, holds GPUs that the node has not beside its own. A suspended job leaves its GPUs to others.
-- Of a node without an inventory, both must hold as many as any job ever held on a node of its cluster.
-- node_s: node-seconds that it adds to the exposure, null where they are not known.
-- keep: no
CREATE TABLE runaways AS
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
ORDER BY l.job_id;
