-- One row: attempts of the period that began, and of which no log says their GPUs. One that goes on is
-- of the last period.
-- keep: no
SELECT count(*) AS n FROM run_asked
WHERE start_us IS NOT NULL AND n_gpus IS NULL
  AND ($since_us IS NULL OR end_us >= $since_us OR (end_us IS NULL AND $until_us IS NULL))
  AND ($until_us IS NULL OR end_us < $until_us)
  AND ($every_cluster OR cluster IN (SELECT cluster FROM asked_clusters))
