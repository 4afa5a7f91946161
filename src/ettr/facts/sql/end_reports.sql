-- One row is an attempt of whose end the controller's log says something: NODE_FAIL, JOB_LOST (its node
-- came back without it) or PREEMPTED. said_node: null where the line names none.
-- A requeue keeps the id of a job: a line is of the attempt whose end is nearest, at most $tolerance_us.
WITH lines AS (
  SELECT cluster, job_id, code, node, event_id, time_us FROM events
  WHERE "check" = 'slurmctld' AND code IN ('NODE_FAIL', 'JOB_LOST', 'PREEMPTED') AND job_id IS NOT NULL),
ends AS (
  SELECT cluster, attempt_id, job_id, start_us, end_us FROM attempts WHERE end_us IS NOT NULL
  UNION ALL
  -- array tasks and parts of jobs have two ids
  SELECT cluster, attempt_id, job_id_raw, start_us, end_us FROM attempts
  WHERE end_us IS NOT NULL AND job_id_raw <> job_id),
near AS (
  SELECT e.attempt_id, l.code, l.node, l.event_id, abs(l.time_us - e.end_us) AS distance_us,
         row_number() OVER (PARTITION BY l.event_id
                            ORDER BY abs(l.time_us - e.end_us), e.end_us, e.attempt_id) AS place
  FROM lines l JOIN ends e ON l.cluster = e.cluster AND l.job_id = e.job_id
  WHERE abs(l.time_us - e.end_us) <= $tolerance_us
    AND (e.start_us IS NULL OR e.start_us <= l.time_us + $tolerance_us)),
best AS (
  SELECT attempt_id, code, node, event_id, row_number() OVER (PARTITION BY attempt_id ORDER BY
           CASE WHEN code = 'PREEMPTED' THEN 1 ELSE 0 END, distance_us, event_id) AS place
  FROM near WHERE place = 1)
SELECT attempt_id, code AS said, node AS said_node, event_id AS said_event FROM best WHERE place = 1
