-- One row is a job of one owner that another waits for by its id, or that has the user and name of one that waits
-- for those. submit_us: of its first attempt. end_us: of its last; null while one is open.
-- keep: no
WITH met AS (
  SELECT a.cluster, a.job_id, a."user", a.name, a.submit_us, a.end_us, a.work_dir
  FROM attempts a JOIN awaited_ids i ON a.cluster = i.cluster AND a.job_id = i.job_id
  UNION
  SELECT a.cluster, a.job_id, a."user", a.name, a.submit_us, a.end_us, a.work_dir
  FROM attempts a
  JOIN awaited_names n ON a.cluster = n.cluster AND a."user" = n."user" AND a.name = n.name)
SELECT cluster, job_id, "user", name, min(submit_us) AS submit_us,
       CASE WHEN count(end_us) = count(*) THEN max(end_us) END AS end_us, min(work_dir) AS work_dir
FROM met GROUP BY cluster, job_id, "user", name ORDER BY submit_us
