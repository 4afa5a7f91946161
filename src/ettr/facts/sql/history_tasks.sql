-- One row is an attempt of a task of the asked array ($job_id), in any cluster or in one ($job_cluster),
-- or of a job of that id, whose is_task is false.
-- keep: no
SELECT cluster, attempt_id, job_id, name, "user", state, submit_us, start_us, end_us, elapsed_s, n_gpus,
       coalesce(array_job_id = $job_id, FALSE) AS is_task
FROM attempts
WHERE (array_job_id = $job_id OR job_id = $job_id)
  AND (CAST($job_cluster AS VARCHAR) IS NULL OR cluster = CAST($job_cluster AS VARCHAR))
