-- One row is a line of the controller that ends a job, and an attempt of that job that ended in a
-- way that such a line may mean. code: the end that the line names; state: how the attempt ended.
-- line: the event; line_file, end_file: files of the two. Of very many lines only the first by id.
-- keep: no
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
FROM lines l JOIN named n ON l.cluster = n.cluster AND l.job_id = n.job_id
