-- Jobs that wait for others, and jobs of those that failed.

-- One row is an attempt that waited for other jobs, of a job with user and name.
-- keep: no
CREATE TABLE waiting_jobs AS
SELECT cluster, job_id, "user", name, submit_us, dependency FROM attempts
WHERE dependency IS NOT NULL AND "user" IS NOT NULL AND name IS NOT NULL;

-- One row is a job of one owner that another waits for by its id, or that has the user and name of one that waits
-- for those. submit_us: of its first attempt. end_us: of its last; null while one is open.
-- keep: no
CREATE TABLE awaited_jobs AS
WITH met AS (
  SELECT a.cluster, a.job_id, a."user", a.name, a.submit_us, a.end_us, a.work_dir
  FROM attempts a JOIN awaited_ids i ON a.cluster = i.cluster AND a.job_id = i.job_id
  UNION
  SELECT a.cluster, a.job_id, a."user", a.name, a.submit_us, a.end_us, a.work_dir
  FROM attempts a
  JOIN awaited_names n ON a.cluster = n.cluster AND a."user" = n."user" AND a.name = n.name)
SELECT cluster, job_id, "user", name, min(submit_us) AS submit_us,
       CASE WHEN count(end_us) = count(*) THEN max(end_us) END AS end_us, min(work_dir) AS work_dir
FROM met GROUP BY cluster, job_id, "user", name ORDER BY submit_us;

-- One row is an attempt of a job that the infrastructure failed, or of another job of its run
-- (run_jobs), in all of the logs.
-- start_us: null where it never started; end_us: where it has not ended.
-- keep: no
CREATE TABLE failed_jobs_attempts AS
WITH jobs AS (
  SELECT cluster, job_id FROM all_failures
  UNION
  SELECT cluster, job_id FROM run_jobs)
SELECT a.cluster, a.job_id, a.attempt_id, a.start_us, a.end_us
FROM attempts a JOIN jobs j ON a.cluster = j.cluster AND a.job_id = j.job_id;

-- One row is an attempt of a job that the infrastructure failed, or of another job of its run
-- (failed_jobs_attempts), with its runtime and node-seconds of the selection.
-- elapsed_s, node_s: null where they are not known, or the attempt is not selected.
-- keep: no
CREATE TABLE failed_jobs_ran AS
SELECT f.cluster, f.job_id, f.attempt_id, f.start_us, e.elapsed_s, e.node_s
FROM failed_jobs_attempts f LEFT JOIN exposure e ON f.attempt_id = e.attempt_id
ORDER BY CASE WHEN f.start_us IS NULL THEN 1 ELSE 0 END, f.start_us, f.attempt_id;
