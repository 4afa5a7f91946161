-- One row is a key (run_keyed.sql) of the asked clusters whose attempts ran for so long in all that
-- one of its runs may have been scheduled for long enough. key_number: from 1.
WITH held AS (
  SELECT cluster, kind, key_1, key_2, key_3 FROM run_keyed
  WHERE ($run_min_gpus = 0 OR n_gpus >= $run_min_gpus)
    AND ($every_cluster OR cluster IN (SELECT cluster FROM asked_clusters))
  GROUP BY cluster, kind, key_1, key_2, key_3
  HAVING $run_min_scheduled_s <= 0 OR sum(end_s - start_s) >= $run_min_scheduled_s)
SELECT row_number() OVER (ORDER BY cluster, kind, key_1, key_2, key_3) AS key_number, cluster, kind,
       key_1, key_2, key_3
FROM held
