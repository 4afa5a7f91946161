-- One row is a user on a node of a partition on a UTC day (days since 1970), by attempts on one node.
-- starts: attempts that began there then and are over; failed: those that ended FAILED, and of these
-- within_30, within_120 and within_600 as many seconds after their start.
-- hit_30, hit_120, hit_600: 1 where at least half of them ended so, else 0.
-- Read only where early_days.sql has rows.
WITH ran AS (
  SELECT cluster, coalesce("partition", '') AS "partition", node_list AS node,
         start_us // 86400000000 AS day, "user", elapsed_s, CASE WHEN state = 'FAILED' THEN 1 ELSE 0 END AS failed
  FROM attempts
  WHERE n_nodes = 1 AND node_list IS NOT NULL AND "user" IS NOT NULL
    AND start_us IS NOT NULL AND end_us IS NOT NULL),
counted AS (
  SELECT cluster, "partition", node, day, "user", count(*) AS starts, CAST(sum(failed) AS BIGINT) AS failed,
         CAST(sum(CASE WHEN elapsed_s <= 30 THEN failed ELSE 0 END) AS BIGINT) AS within_30,
         CAST(sum(CASE WHEN elapsed_s <= 120 THEN failed ELSE 0 END) AS BIGINT) AS within_120,
         CAST(sum(CASE WHEN elapsed_s <= 600 THEN failed ELSE 0 END) AS BIGINT) AS within_600
  FROM ran GROUP BY cluster, "partition", node, day, "user")
SELECT cluster, "partition", node, day, "user", starts, failed, within_30, within_120, within_600,
       CASE WHEN 2 * within_30 >= starts THEN 1 ELSE 0 END AS hit_30,
       CASE WHEN 2 * within_120 >= starts THEN 1 ELSE 0 END AS hit_120,
       CASE WHEN 2 * within_600 >= starts THEN 1 ELSE 0 END AS hit_600
FROM counted
