-- One row: of jobs that count restarts, restarts: how many; unseen: attempts that these lead to and the
-- logs lack; both null where none counts any. known: attempts that say a number, 0 too.
-- keep: no
WITH restarted AS (SELECT DISTINCT cluster, job_id FROM attempts WHERE restarts > 0),
by_job AS (
  SELECT a.cluster, a.job_id, max(a.restarts) AS restarts, count(*) AS held
  FROM attempts a JOIN restarted r ON a.cluster = r.cluster AND a.job_id = r.job_id
  GROUP BY a.cluster, a.job_id),
counted AS (SELECT count(restarts) AS known FROM attempts),
summed AS (
  SELECT sum(restarts) AS restarts,
         sum(CASE WHEN restarts + 1 > held THEN restarts + 1 - held ELSE 0 END) AS unseen
  FROM by_job)
SELECT known, restarts, unseen FROM counted CROSS JOIN summed
