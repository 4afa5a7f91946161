-- One row: whether a job has several attempts among the first $first_rows rows of all attempts.
-- n: attempts; jobs: how many jobs these are.
-- keep: no
WITH by_job AS (
  SELECT cluster, job_id, count(*) AS n
  FROM (SELECT cluster, job_id FROM attempts LIMIT $first_rows) some_attempts
  GROUP BY cluster, job_id)
SELECT coalesce(sum(n), 0) AS n, count(*) AS jobs FROM by_job
