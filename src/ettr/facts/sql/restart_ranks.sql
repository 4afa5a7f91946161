-- One row is a job within which its training restarted, with the rank to believe: of those that report
-- most restarts the lowest.
WITH by_rank AS (
  SELECT run_id, cluster, job_id, rank, count(*) AS n FROM progress_owned WHERE event = 'restart'
  GROUP BY run_id, cluster, job_id, rank),
most AS (
  SELECT run_id, cluster, job_id, max(n) AS n FROM by_rank GROUP BY run_id, cluster, job_id)
SELECT b.run_id, b.cluster, b.job_id, min(b.rank) AS rank
FROM by_rank b
JOIN most m ON b.run_id = m.run_id AND b.cluster = m.cluster AND b.job_id = m.job_id AND b.n = m.n
GROUP BY b.run_id, b.cluster, b.job_id
