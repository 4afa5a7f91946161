-- One row is a line of the controller's log that names a preempted job and, as related_job_id, the job
-- that it made room for.
SELECT cluster, job_id, related_job_id, time_us FROM events
WHERE "check" = 'slurmctld' AND code = 'PREEMPTED' AND job_id IS NOT NULL AND related_job_id IS NOT NULL
