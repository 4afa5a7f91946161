-- One row is a request in the controller's log to cancel a job, and an attempt of the job that ended
-- CANCELLED near it, of which the accounting does not say who cancelled it. A request for an array is
-- one for each of its tasks.
-- keep: no
WITH requests AS (
  SELECT cluster, time_us, message,
         CASE WHEN right(job_id, 2) = '_*' THEN left(job_id, length(job_id) - 2) ELSE job_id END AS asked
  FROM whole_events
  WHERE "check" = 'slurmctld' AND code = 'CANCELLED' AND job_id IS NOT NULL),
unknown AS (
  SELECT cluster, attempt_id, end_us, job_id, array_job_id FROM whole_attempts
  WHERE state = 'CANCELLED' AND cancelled_by IS NULL AND end_us IS NOT NULL),
named AS (
  SELECT cluster, attempt_id, end_us, job_id AS asked FROM unknown
  UNION ALL
  SELECT cluster, attempt_id, end_us, array_job_id AS asked FROM unknown WHERE array_job_id IS NOT NULL)
SELECT n.attempt_id, r.time_us, r.message
FROM named n JOIN requests r ON n.cluster = r.cluster AND n.asked = r.asked
WHERE abs(r.time_us - n.end_us) <= $tolerance_us
