-- Pairs of moments in two logs of one thing, by which a shift of clocks shows.

-- One row is a line of the controller that ends a job, and an attempt of that job that ended in a
-- way that such a line may mean. code: the end that the line names; state: how the attempt ended.
-- line: the event; line_file, end_file: files of the two. Of very many lines only the first by id.
-- keep: no
CREATE TABLE controller_ends AS
WITH lines AS (
  SELECT cluster, job_id, code, time_us, event_id AS line, file_id AS line_file
  FROM events
  WHERE "check" = 'slurmctld' AND job_id IS NOT NULL
    AND code IN ('NODE_FAIL', 'JOB_LOST', 'PREEMPTED', 'REQUEUED', 'TIMEOUT', 'CANCELLED', 'OUT_OF_MEMORY')
  ORDER BY event_id LIMIT 20000),
ended AS (
  SELECT cluster, job_id, job_id_raw, state, end_us, file_id AS end_file
  FROM attempts
  WHERE end_us IS NOT NULL
    AND state IN ('NODE_FAIL', 'PREEMPTED', 'REQUEUED', 'REQUEUE_HOLD', 'TIMEOUT', 'CANCELLED',
                  'OUT_OF_MEMORY')),
named AS (
  SELECT cluster, job_id, state, end_us, end_file FROM ended
  UNION ALL
  SELECT cluster, job_id_raw AS job_id, state, end_us, end_file FROM ended WHERE job_id_raw <> job_id)
SELECT l.cluster, l.job_id AS thing, l.line, l.code, n.state, l.time_us, n.end_us, l.line_file, n.end_file
FROM lines l JOIN named n ON l.cluster = n.cluster AND l.job_id = n.job_id;

-- One row is a node that went down, and an attempt on it that ended with a node's failure at most 26
-- hours, the most that zones lie apart, before or after. Columns as in controller_ends; the end
-- of the attempt is the line: it has one node that went down, of maybe many.
-- keep: no
CREATE TABLE node_ends AS
SELECT h.cluster, h.node AS thing, h.attempt_id AS line, 'NODE_FAIL' AS code, 'NODE_FAIL' AS state,
       s.start_us AS time_us, h.end_us, s.file_id AS line_file, h.end_file
FROM node_fail_held h JOIN node_states s ON h.cluster = s.cluster AND h.node = s.node
WHERE s.state = 'DOWN'
  AND s.start_us - h.end_us <= 93600000000 AND h.end_us - s.start_us <= 93600000000;

-- One row is a node that went out of service, and an hour with events of it (errors, warnings, checks that
-- failed) at most 26 hours before or after, where at most five have any: a node that logs something every
-- hour fits any shift. Columns as in controller_ends; going out is the line: what of its node was
-- logged lies near it. time_us: the first event of the hour.
-- keep: no
CREATE TABLE event_ends AS
WITH gone AS (
  SELECT s.cluster, s.node, s.start_us, min(s.file_id) AS end_file
  FROM node_states s LEFT JOIN busy_days b  -- more than five hours of that day have one
    ON s.cluster = b.cluster AND s.node = b.node AND s.start_us // 86400000000 = b.day
  WHERE s.state IN ('DOWN', 'DRAIN', 'FAIL') AND s.source <> 'slurm-inventory' AND s.node IS NOT NULL
    AND b.node IS NULL
  GROUP BY s.cluster, s.node, s.start_us),
-- stretches of 26 hours, each of whole hours: most events lie in none that counts
reach AS (
  SELECT cluster, node, start_us // 93600000000 AS stretch FROM gone
  UNION
  SELECT cluster, node, start_us // 93600000000 - 1 FROM gone
  UNION
  SELECT cluster, node, start_us // 93600000000 + 1 FROM gone),
noted AS (
  SELECT e.cluster, e.node, min(e.time_us) AS time_us, min(e.file_id) AS line_file
  FROM events e JOIN reach r
    ON e.cluster = r.cluster AND e.node = r.node AND e.time_us // 93600000000 = r.stretch
  WHERE e."check" <> 'slurmctld' AND e.severity <> 'ok'
  GROUP BY e.cluster, e.node, e.time_us // 3600000000),
near AS (
  SELECT o.cluster, o.node, o.start_us, h.time_us, h.line_file, o.end_file,
         count(*) OVER (PARTITION BY o.cluster, o.node, o.start_us) AS hours
  FROM gone o JOIN noted h ON o.cluster = h.cluster AND o.node = h.node
  WHERE h.time_us - o.start_us <= 93600000000 AND o.start_us - h.time_us <= 93600000000)
SELECT cluster, node AS thing, node || ' ' || CAST(start_us AS VARCHAR) AS line,
       'NODE_FAIL' AS code, 'NODE_FAIL' AS state, time_us, start_us AS end_us, line_file, end_file
FROM near WHERE hours <= 5;
