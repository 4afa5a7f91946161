-- One row is a thing that one check said of one node, or of one part of it (entity; null: the whole),
-- in the selected period. events: how often; first_us, last_us; file_id, line: where the last stands.
-- keep: no
WITH mine AS (
  SELECT "check", code, severity, entity, time_us, file_id, line,
         row_number() OVER (PARTITION BY "check", code, severity, entity
                            ORDER BY time_us DESC, line DESC) AS place
  FROM events
  WHERE cluster = $asked_cluster AND node = $asked_node
    AND time_us >= coalesce(CAST($since_us AS BIGINT), time_us)
    AND time_us < coalesce(CAST($until_us AS BIGINT), time_us + 1))
SELECT "check", code, severity, entity, count(*) AS events,
       min(time_us) AS first_us, max(time_us) AS last_us,
       max(CASE WHEN place = 1 THEN file_id END) AS file_id,
       max(CASE WHEN place = 1 THEN line END) AS line
FROM mine GROUP BY "check", code, severity, entity
