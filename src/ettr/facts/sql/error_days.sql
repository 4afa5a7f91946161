-- One row is a node on a UTC day with kernel messages or health checks of it: n_rows. A day of a
-- node's log is one row, whatever the log says: lines come in bursts.
WITH seen AS (
  SELECT cluster, node, day, errors AS n_rows FROM event_days WHERE errors > 0
  UNION ALL
  SELECT DISTINCT cluster, node, CAST(floor(day_us / 86400000000.0) AS BIGINT) AS day, 1 AS n_rows
  FROM log_days)
SELECT cluster, node, day, CAST(sum(n_rows) AS BIGINT) AS n_rows
FROM seen GROUP BY cluster, node, day
