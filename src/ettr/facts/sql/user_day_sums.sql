-- One row is a sum over user_days.sql. kind: 'node' of a node and partition, 'day' of a partition and
-- day, 'user' of a user; what is no part of the kind is null. n: rows that were summed.
-- keep: no
SELECT 'node' AS kind, cluster, "partition", node, CAST(NULL AS BIGINT) AS day, CAST(NULL AS VARCHAR) AS "user",
       count(*) AS n, count(DISTINCT day) AS days, CAST(sum(starts) AS BIGINT) AS starts,
       CAST(sum(failed) AS BIGINT) AS failed, CAST(sum(within_30) AS BIGINT) AS within_30,
       CAST(sum(within_120) AS BIGINT) AS within_120, CAST(sum(within_600) AS BIGINT) AS within_600,
       CAST(sum(hit_30) AS BIGINT) AS hit_30, CAST(sum(hit_120) AS BIGINT) AS hit_120,
       CAST(sum(hit_600) AS BIGINT) AS hit_600
FROM user_days GROUP BY cluster, "partition", node
UNION ALL
SELECT 'day', cluster, "partition", CAST(NULL AS VARCHAR), day, CAST(NULL AS VARCHAR),
       count(*), 1, CAST(sum(starts) AS BIGINT), CAST(sum(failed) AS BIGINT), CAST(sum(within_30) AS BIGINT),
       CAST(sum(within_120) AS BIGINT), CAST(sum(within_600) AS BIGINT), CAST(sum(hit_30) AS BIGINT),
       CAST(sum(hit_120) AS BIGINT), CAST(sum(hit_600) AS BIGINT)
FROM user_days GROUP BY cluster, "partition", day
UNION ALL
SELECT 'user', cluster, CAST(NULL AS VARCHAR), CAST(NULL AS VARCHAR), CAST(NULL AS BIGINT), "user",
       count(*), count(DISTINCT day), CAST(sum(starts) AS BIGINT), CAST(sum(failed) AS BIGINT),
       CAST(sum(within_30) AS BIGINT), CAST(sum(within_120) AS BIGINT), CAST(sum(within_600) AS BIGINT),
       CAST(sum(hit_30) AS BIGINT), CAST(sum(hit_120) AS BIGINT), CAST(sum(hit_600) AS BIGINT)
FROM user_days GROUP BY cluster, "user"
