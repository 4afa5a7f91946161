-- One row is an attempt that began, of a job within which its training restarted; is_asked: it is of
-- the selection.
-- keep: no
WITH jobs AS (SELECT DISTINCT cluster, job_id FROM restart_ranks)
SELECT a.cluster, a.job_id, a.start_us, a.end_us, a.n_gpus, a.n_nodes,
       e.attempt_id IS NOT NULL AS is_asked
FROM attempts a
JOIN jobs j ON a.cluster = j.cluster AND a.job_id = j.job_id
LEFT JOIN exposure e ON a.attempt_id = e.attempt_id
WHERE a.start_us IS NOT NULL ORDER BY a.start_us
