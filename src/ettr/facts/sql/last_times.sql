-- One row is a cluster with attempts, and the last time in each of their columns; null where it is empty.
-- keep: no
SELECT cluster, max(submit_us) AS submit_us, max(start_us) AS start_us, max(end_us) AS end_us
FROM named_attempts GROUP BY cluster
