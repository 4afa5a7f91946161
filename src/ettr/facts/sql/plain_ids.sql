-- One row is a job that is no heterogeneous one, whose id a part of one has too.
-- keep: no
WITH ids AS (
  SELECT job_id AS part FROM parts_attempts WHERE het_job_id IS NOT NULL
  UNION
  SELECT job_id_raw AS part FROM parts_attempts WHERE het_job_id IS NOT NULL)
SELECT DISTINCT cluster, job_id FROM parts_attempts
WHERE het_job_id IS NULL AND job_id IN (SELECT part FROM ids)
