-- One row is a table whose moments count where those of log_moments.sql name none at all; columns
-- as there. A day of a node's log reaches to its end.
-- keep: no
SELECT 'allocations' AS table_name, min(start_us) AS first_a_us, max(start_us) AS last_a_us,
       min(end_us) AS first_b_us, max(end_us) AS last_b_us
FROM allocations
UNION ALL
SELECT 'progress' AS table_name, min(time_us) AS first_a_us, max(time_us) AS last_a_us,
       CAST(NULL AS BIGINT) AS first_b_us, CAST(NULL AS BIGINT) AS last_b_us
FROM progress
UNION ALL
SELECT 'log_days' AS table_name, min(day_us) AS first_a_us, max(day_us) AS last_a_us,
       min(day_us) + 86400000000 AS first_b_us, max(day_us) + 86400000000 AS last_b_us
FROM log_days
