-- One row is a cluster with attempts: whether any of them ran, and any that ran names its GPUs; whether
-- one that goes on was suspended for a time. 1: yes.
-- keep: no
SELECT cluster, max(CASE WHEN elapsed_s > 0 THEN 1 ELSE 0 END) AS ran,
       max(CASE WHEN elapsed_s > 0 AND n_gpus IS NOT NULL THEN 1 ELSE 0 END) AS names_gpus,
       max(CASE WHEN end_us IS NULL AND suspended_s > 0 THEN 1 ELSE 0 END) AS open_suspended
FROM attempts GROUP BY cluster
