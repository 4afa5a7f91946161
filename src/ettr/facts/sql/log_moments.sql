-- One row is a table that says when its logs were written: the first and the last of each moment
-- that it names (a, b, c), null where none does. runs_until_s: of attempts that have not ended, the
-- last second, from 1970, up to which the runtime counts that accounting gave them.
-- keep: no
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
FROM nodes
