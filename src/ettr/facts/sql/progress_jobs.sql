-- One row is a job whose progress is recorded.
SELECT DISTINCT cluster, job_id FROM progress_owned
