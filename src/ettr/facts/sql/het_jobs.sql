-- Heterogeneous jobs: their parts, and jobs whose ids meet those of parts.

-- One row is a part of a heterogeneous job, with all columns of attempts.
-- keep: no
CREATE TABLE het_parts AS
SELECT * FROM parts_attempts WHERE het_job_id IS NOT NULL;

-- One row is a job that is no heterogeneous one, whose id a part of one has too.
-- keep: no
CREATE TABLE plain_ids AS
WITH ids AS (
  SELECT job_id AS part FROM parts_attempts WHERE het_job_id IS NOT NULL
  UNION
  SELECT job_id_raw AS part FROM parts_attempts WHERE het_job_id IS NOT NULL)
SELECT DISTINCT cluster, job_id FROM parts_attempts
WHERE het_job_id IS NULL AND job_id IN (SELECT part FROM ids);
