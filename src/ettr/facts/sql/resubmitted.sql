-- One row is an attempt of a run of several jobs of which the infrastructure failed one, in order of
-- time. run: the same number for attempts of one run.
-- keep: no
WITH several AS (
  SELECT key_number, run_part, run_job FROM run_parts GROUP BY key_number, run_part, run_job
  HAVING min(job_id) <> max(job_id)),
numbered AS (
  SELECT key_number, run_part, run_job,
         row_number() OVER (ORDER BY key_number, run_part, run_job) AS run
  FROM several)
SELECT n.run, p.cluster, p.attempt_id, p.job_id
FROM run_parts p
JOIN numbered n
  ON p.key_number = n.key_number AND p.run_part = n.run_part AND p.run_job = n.run_job
ORDER BY p.start_s, p.attempt_id
