-- One row is an attempt of a job that the infrastructure failed, or of another job of its run
-- (run_jobs), in all of the logs.
-- start_us: null where it never started; end_us: where it has not ended.
-- keep: no
WITH jobs AS (
  SELECT cluster, job_id FROM all_failures
  UNION
  SELECT cluster, job_id FROM run_jobs)
SELECT a.cluster, a.job_id, a.attempt_id, a.start_us, a.end_us
FROM attempts a JOIN jobs j ON a.cluster = j.cluster AND a.job_id = j.job_id
