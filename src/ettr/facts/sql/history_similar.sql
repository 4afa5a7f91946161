-- One row is an id of a job: of the tasks of the asked array ($job_base), of the parts of that job, and
-- others that begin like it ($job_stem). kin: not only its beginning is the
-- same. At most 8, kin first.
-- keep: no
SELECT DISTINCT job_id,
       coalesce(array_job_id = $job_base, FALSE) OR coalesce(het_job_id = $job_base, FALSE)
         OR coalesce(job_id_raw = $job_id, FALSE) OR job_id = $job_base AS kin
FROM attempts
WHERE array_job_id = $job_base OR het_job_id = $job_base OR job_id_raw = $job_id OR job_id = $job_base
   OR substr(job_id, 1, length($job_stem)) = $job_stem
ORDER BY kin DESC, job_id LIMIT 8
