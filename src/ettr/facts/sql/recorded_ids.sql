-- One row is a job whose training run progress shows in several jobs; recorded_run: that run.
WITH shared AS (SELECT DISTINCT cluster, run_id, job_id FROM run_progress),
several AS (SELECT cluster, run_id FROM shared GROUP BY cluster, run_id HAVING count(*) > 1)
SELECT s.cluster, s.job_id, min(s.run_id) AS recorded_run
FROM shared s JOIN several v ON s.cluster = v.cluster AND s.run_id = v.run_id
GROUP BY s.cluster, s.job_id
