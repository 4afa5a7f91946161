-- What the stored tables hold: rows, days and moments.

-- One row is a table that says when its logs were written: the first and the last of each moment
-- that it names (a, b, c), null where none does. runs_until_s: of attempts that have not ended, the
-- last second, from 1970, up to which the runtime counts that accounting gave them.
-- keep: no
CREATE TABLE log_moments AS
SELECT 'attempts' AS table_name,
       min(start_us) AS first_a_us, max(start_us) AS last_a_us,
       min(end_us) AS first_b_us, max(end_us) AS last_b_us,
       min(submit_us) AS first_c_us, max(submit_us) AS last_c_us,
       max(CASE WHEN end_us IS NULL THEN start_us // 1000000 + elapsed_s END) AS runs_until_s
FROM attempts
UNION ALL
SELECT 'node_states' AS table_name, min(start_us) AS first_a_us, max(start_us) AS last_a_us,
       min(end_us) AS first_b_us, max(end_us) AS last_b_us,
       CAST(NULL AS BIGINT) AS first_c_us, CAST(NULL AS BIGINT) AS last_c_us,
       CAST(NULL AS DOUBLE) AS runs_until_s
FROM node_states
UNION ALL
SELECT 'events' AS table_name, min(first_us) AS first_a_us, max(last_us) AS last_a_us,
       min(first_end_us) AS first_b_us, max(last_end_us) AS last_b_us,
       CAST(NULL AS BIGINT) AS first_c_us, CAST(NULL AS BIGINT) AS last_c_us,
       CAST(NULL AS DOUBLE) AS runs_until_s
FROM event_census
UNION ALL
SELECT 'nodes' AS table_name, min(in_service_from_us) AS first_a_us, max(in_service_from_us) AS last_a_us,
       min(in_service_to_us) AS first_b_us, max(in_service_to_us) AS last_b_us,
       CAST(NULL AS BIGINT) AS first_c_us, CAST(NULL AS BIGINT) AS last_c_us,
       CAST(NULL AS DOUBLE) AS runs_until_s
FROM nodes;

-- One row is a table whose moments count where those of log_moments name none at all; columns
-- as there. A day of a node's log reaches to its end.
-- keep: no
CREATE TABLE other_moments AS
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
FROM log_days;

-- One row is a cluster in a stored table (table_name); cluster: null where rows name none.
-- n_rows: how many rows.
-- keep: no
CREATE TABLE rows_by_cluster AS
SELECT 'attempts' AS table_name, cluster, count(*) AS n_rows FROM attempts GROUP BY cluster
UNION ALL
SELECT 'events' AS table_name, cluster, count(*) AS n_rows FROM events GROUP BY cluster
UNION ALL
SELECT 'node_states' AS table_name, cluster, count(*) AS n_rows FROM node_states GROUP BY cluster
UNION ALL
SELECT 'nodes' AS table_name, cluster, count(*) AS n_rows FROM nodes GROUP BY cluster
UNION ALL
SELECT 'progress' AS table_name, cluster, count(*) AS n_rows FROM progress GROUP BY cluster
UNION ALL
SELECT 'log_days' AS table_name, cluster, count(*) AS n_rows FROM log_days GROUP BY cluster
UNION ALL
SELECT 'incidents' AS table_name, cluster, count(*) AS n_rows FROM incidents GROUP BY cluster;

-- One row is a source's rows in a stored table (table_name) on a UTC day: n_rows.
-- day: as days since 1970, of the submission, the start of a state, or the time; null where none is
-- named.
-- keep: no
CREATE TABLE rows_by_day AS
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
FROM progress GROUP BY source, CAST(floor(time_us / 86400000000.0) AS BIGINT);

-- One row is a reason for which rows of a source were rejected: n_rows, and the first of them.
-- keep: no
CREATE TABLE rejects_by_reason AS
WITH placed AS (
  SELECT source, reason, file_id, line, detail,
         row_number() OVER (PARTITION BY source, reason ORDER BY file_id, line) AS place
  FROM rejects)
SELECT source, reason, count(*) AS n_rows,
       max(CASE WHEN place = 1 THEN file_id END) AS file_id,
       max(CASE WHEN place = 1 THEN line END) AS line,
       max(CASE WHEN place = 1 THEN detail END) AS detail
FROM placed GROUP BY source, reason;

-- One row: held_s, the node-seconds of all allocations; null where none has a runtime.
-- keep: no
CREATE TABLE held_hours AS
SELECT sum(elapsed_s) AS held_s FROM allocations;
