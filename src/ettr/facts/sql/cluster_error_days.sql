-- One row is a cluster on a UTC day with kernel messages or health checks: n_rows, as in error_days.
-- keep: no
SELECT cluster, day, CAST(sum(n_rows) AS BIGINT) AS n_rows FROM error_days GROUP BY cluster, day
