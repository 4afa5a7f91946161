-- One row is a job that progress names without its cluster, where one cluster alone has a job of
-- that id.
SELECT job_id, min(cluster) AS cluster FROM attempts
WHERE job_id IN (SELECT job_id FROM progress WHERE cluster IS NULL AND job_id IS NOT NULL)
GROUP BY job_id HAVING min(cluster) = max(cluster)
