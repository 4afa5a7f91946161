-- One row is a selected attempt that probably hung: it was cancelled, or ran into its time limit, or put
-- itself back into the queue, after a fault on one of its nodes (node), which was then taken out of service
-- for no planned work before $hung_out_us after the end had passed.
-- fault_us: when the fault was first seen in the run, symptom: which; out_us: since when the node was out.
-- last_step_us: the last step that progress records of the attempt, null without any.
-- keep: no
WITH outs AS (
  SELECT s.cluster, s.node, s.start_us
  FROM node_states s JOIN reasons r ON coalesce(s.reason, '') = r.reason_key
  WHERE s.state IN (SELECT state FROM states_of_outages) AND s.state <> 'MAINT'
    AND NOT (r.planned AND r.reason_key <> '')),
ends AS (
  SELECT c.attempt_id, c.job_id, c.state, c.end_us, c.n_nodes, c.n_gpus, a.cluster, a.node, a.start_us
  FROM chosen c JOIN allocations a ON c.attempt_id = a.attempt_id
  WHERE c.belongs AND c.end_us IS NOT NULL AND a.start_us IS NOT NULL
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
WHERE f.attempt_id IS NULL AND (t.last_step_us IS NULL OR t.last_step_us <= h.end_us - $hung_silent_us)
