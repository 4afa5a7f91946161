-- One row is an attempt that waited for other jobs, of a job with user and name.
-- keep: no
SELECT cluster, job_id, "user", name, submit_us, dependency FROM attempts
WHERE dependency IS NOT NULL AND "user" IS NOT NULL AND name IS NOT NULL
