-- One row is a row of user_days.sql on a node and day of early_days.sql; columns as there.
-- user_n, user_hit_30, user_hit_120, user_hit_600: the same user's rows on that node, of all days.
-- keep: no
WITH suspect AS (SELECT cluster, node, day FROM early_days),
own AS (
  SELECT u.cluster, u.node, u."user", count(*) AS user_n, CAST(sum(u.hit_30) AS BIGINT) AS user_hit_30,
         CAST(sum(u.hit_120) AS BIGINT) AS user_hit_120, CAST(sum(u.hit_600) AS BIGINT) AS user_hit_600
  FROM user_days u JOIN (SELECT DISTINCT cluster, node FROM suspect) s
    ON u.cluster = s.cluster AND u.node = s.node
  GROUP BY u.cluster, u.node, u."user")
SELECT u.cluster, u."partition", u.node, u.day, u."user", u.starts, u.within_30, u.within_120, u.within_600,
       u.hit_30, u.hit_120, u.hit_600, o.user_n, o.user_hit_30, o.user_hit_120, o.user_hit_600
FROM user_days u
JOIN suspect s ON u.cluster = s.cluster AND u.node = s.node AND u.day = s.day
JOIN own o ON u.cluster = o.cluster AND u.node = o.node AND u."user" = o."user"
