-- One row is a number of GPUs and of nodes of chosen attempts that began, of jobs whose progress is
-- recorded; job_s: seconds run.
-- keep: no
SELECT e.n_gpus, e.n_nodes, sum(coalesce(e.elapsed_s, 0.0)) AS job_s
FROM attempts a
JOIN progress_jobs p ON a.cluster = p.cluster AND a.job_id = p.job_id
JOIN exposure e ON a.attempt_id = e.attempt_id
WHERE e.start_us IS NOT NULL GROUP BY e.n_gpus, e.n_nodes
