-- One row is a source's rows in a stored table (table_name) on a UTC day: n_rows.
-- day: as days since 1970, of the submission, the start of a state, or the time; null where none is
-- named.
-- keep: no
SELECT 'attempts' AS table_name, source, CAST(floor(submit_us / 86400000000.0) AS BIGINT) AS day,
       count(*) AS n_rows
FROM attempts GROUP BY source, CAST(floor(submit_us / 86400000000.0) AS BIGINT)
UNION ALL
SELECT 'node_states' AS table_name, source, CAST(floor(start_us / 86400000000.0) AS BIGINT) AS day,
       count(*) AS n_rows
FROM node_states GROUP BY source, CAST(floor(start_us / 86400000000.0) AS BIGINT)
UNION ALL
SELECT 'events' AS table_name, source, day, CAST(sum(events) AS BIGINT) AS n_rows
FROM event_census GROUP BY source, day
UNION ALL
SELECT 'progress' AS table_name, source, CAST(floor(time_us / 86400000000.0) AS BIGINT) AS day,
       count(*) AS n_rows
FROM progress GROUP BY source, CAST(floor(time_us / 86400000000.0) AS BIGINT)
