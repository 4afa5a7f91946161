-- One row is a check on a node. passes: results that are ok; others: the moments of those that are not.
-- first_us, last_us: of all; last_pass_us: null without any. timed, timed_s: passes whose end is known,
-- and the seconds of these.
-- keep: no
WITH placed AS (
  SELECT cluster, node, "check", time_us, severity = 'ok' AS pass,
         CASE WHEN severity = 'ok' AND time_end_us >= time_us THEN time_end_us - time_us END AS took_us
  FROM events WHERE node IS NOT NULL)
SELECT cluster, node, "check", min(time_us) AS first_us, max(time_us) AS last_us,
       CAST(sum(CASE WHEN pass THEN 1 ELSE 0 END) AS BIGINT) AS passes,
       count(DISTINCT CASE WHEN NOT pass THEN time_us END) AS others,
       max(CASE WHEN pass THEN time_us END) AS last_pass_us,
       count(took_us) AS timed, CAST(sum(took_us) / 1000000.0 AS DOUBLE) AS timed_s
FROM placed GROUP BY cluster, node, "check"
