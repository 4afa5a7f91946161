-- One row is a step of the period as a rank records it, of the clusters asked about. Columns as the table
-- progress.
-- keep: no
SELECT cluster, run_id, job_id, rank, time_us, step, duration_s, detail FROM progress
WHERE event = 'step' AND duration_s IS NOT NULL
  AND ($every_cluster OR cluster IN (SELECT name FROM asked WHERE kind = 'cluster'))
  AND ($since_us IS NULL OR time_us >= $since_us) AND ($until_us IS NULL OR time_us < $until_us)
ORDER BY run_id, rank, time_us
