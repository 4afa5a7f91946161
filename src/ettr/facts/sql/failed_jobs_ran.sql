-- One row is an attempt of a job that the infrastructure failed, or of another job of its run
-- (failed_jobs_attempts.sql), with its runtime and node-seconds of the selection.
-- elapsed_s, node_s: null where they are not known, or the attempt is not selected.
-- keep: no
SELECT f.cluster, f.job_id, f.attempt_id, f.start_us, e.elapsed_s, e.node_s
FROM failed_jobs_attempts f LEFT JOIN exposure e ON f.attempt_id = e.attempt_id
ORDER BY CASE WHEN f.start_us IS NULL THEN 1 ELSE 0 END, f.start_us, f.attempt_id
