-- One row is a part of a heterogeneous job, with all columns of attempts.
-- keep: no
SELECT * FROM parts_attempts WHERE het_job_id IS NOT NULL
