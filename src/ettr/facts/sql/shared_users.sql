-- One row is a user of attempts on several nodes, those that are over. n: days on which some began; hit_30,
-- hit_120, hit_600: of these, where at least half ended FAILED within so many seconds. starts, failed,
-- within_30, within_120, within_600: the attempts. first_day, last_day: of them, since 1970.
-- keep: no
WITH days AS (
  SELECT cluster, "user", start_us // 86400000000 AS day, count(*) AS starts,
         sum(CASE WHEN state = 'FAILED' THEN 1 ELSE 0 END) AS failed,
         sum(CASE WHEN state = 'FAILED' AND elapsed_s <= 30 THEN 1 ELSE 0 END) AS within_30,
         sum(CASE WHEN state = 'FAILED' AND elapsed_s <= 120 THEN 1 ELSE 0 END) AS within_120,
         sum(CASE WHEN state = 'FAILED' AND elapsed_s <= 600 THEN 1 ELSE 0 END) AS within_600
  FROM attempts
  WHERE n_nodes > 1 AND "user" IS NOT NULL AND start_us IS NOT NULL AND end_us IS NOT NULL
    AND elapsed_s IS NOT NULL
  GROUP BY cluster, "user", start_us // 86400000000)
SELECT cluster, "user", count(*) AS n, min(day) AS first_day, max(day) AS last_day,
       CAST(sum(starts) AS BIGINT) AS starts, CAST(sum(failed) AS BIGINT) AS failed,
       CAST(sum(within_30) AS BIGINT) AS within_30, CAST(sum(within_120) AS BIGINT) AS within_120,
       CAST(sum(within_600) AS BIGINT) AS within_600,
       CAST(sum(CASE WHEN 2 * within_30 >= starts THEN 1 ELSE 0 END) AS BIGINT) AS hit_30,
       CAST(sum(CASE WHEN 2 * within_120 >= starts THEN 1 ELSE 0 END) AS BIGINT) AS hit_120,
       CAST(sum(CASE WHEN 2 * within_600 >= starts THEN 1 ELSE 0 END) AS BIGINT) AS hit_600
FROM days GROUP BY cluster, "user"
