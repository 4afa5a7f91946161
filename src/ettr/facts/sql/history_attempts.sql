-- One row is an attempt of the asked job ($job_id), in any cluster or in one ($job_cluster).
SELECT cluster, attempt_id, job_id, job_id_raw, name, "user", state, exit_code, cancelled_by, submit_us, start_us, end_us,
       elapsed_s, n_gpus, file_id, line
FROM attempts
WHERE job_id = $job_id
  AND (CAST($job_cluster AS VARCHAR) IS NULL OR cluster = CAST($job_cluster AS VARCHAR))
