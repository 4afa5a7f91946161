-- One row is an attempt of all logs, as a fit and a back-test read it.
-- keep: no
SELECT cluster, job_id, attempt_id, "user", name, qos, priority, state, submit_us, eligible_us, start_us, end_us,
       elapsed_s, time_limit_s, n_nodes, n_gpus, requested_nodes, requested_gpus, n_cpus, account
FROM attempts
