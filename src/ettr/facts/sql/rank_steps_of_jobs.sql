-- One row is a step, as in rank_steps.sql, of a chosen job whose cluster is known.
-- keep: no
WITH owned AS (
  SELECT coalesce(s.cluster, o.cluster) AS cluster, s.run_id, s.job_id, s.rank, s.step, s.time_us,
         s.duration_s, s.detail
  FROM rank_steps s LEFT JOIN progress_owners o ON s.job_id = o.job_id),
jobs AS (SELECT DISTINCT cluster, job_id FROM chosen)
SELECT s.cluster, s.run_id, s.job_id, s.rank, s.step, s.duration_s, s.detail
FROM owned s JOIN jobs j ON s.cluster = j.cluster AND s.job_id = j.job_id
ORDER BY s.run_id, s.rank, s.time_us
