-- One row: how often the selected runs of progress began again: a later `start`, or a `restart` that
-- follows none. The lowest rank that reports of each job counts.
-- keep: no
WITH lowest AS (
  SELECT run_id, job_id, min(rank) AS rank FROM progress_recorded GROUP BY run_id, job_id),
begun AS (
  SELECT p.run_id, p.event,
         lag(p.event) OVER (PARTITION BY p.run_id ORDER BY p.time_us, p.file_id, p.line) AS prior
  FROM progress_recorded p
  JOIN lowest l ON p.run_id = l.run_id AND p.job_id = l.job_id AND p.rank = l.rank
  WHERE p.event IN ('start', 'restart', 'step'))
SELECT coalesce(sum(CASE WHEN event = 'start' AND prior IS NOT NULL THEN 1
                         WHEN event = 'restart' AND coalesce(prior, '') <> 'start' THEN 1
                         ELSE 0 END), 0) AS restarts
FROM begun
