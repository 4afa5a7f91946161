-- One row is a job that ran and has progress: from when to when it was recorded (first_us, last_us,
-- file_id), and from when to when it ran (start_us, end_us, attempt_file_id; is_open: 1 where an
-- attempt has no end).
-- keep: no
WITH covered AS (
  SELECT cluster, job_id, min(time_us) AS first_us, max(time_us) AS last_us, min(file_id) AS file_id
  FROM progress_owned GROUP BY cluster, job_id)
SELECT a.cluster, a.job_id, c.first_us, c.last_us, c.file_id,
       min(a.start_us) AS start_us, max(a.end_us) AS end_us,
       max(CASE WHEN a.end_us IS NULL THEN 1 ELSE 0 END) AS is_open, min(a.file_id) AS attempt_file_id
FROM attempts a JOIN covered c ON a.cluster = c.cluster AND a.job_id = c.job_id
WHERE a.start_us IS NOT NULL
GROUP BY a.cluster, a.job_id, c.first_us, c.last_us, c.file_id
