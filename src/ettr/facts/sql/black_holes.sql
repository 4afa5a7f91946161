-- Nodes on which attempts of several users fail at once.

-- One row is a node and a UTC day (days since 1970) on which attempts of several users, each on this node
-- alone, ended FAILED within 600 s of their start.
-- keep: no
CREATE TABLE early_days AS
SELECT cluster, node_list AS node, start_us // 86400000000 AS day
FROM attempts
WHERE state = 'FAILED' AND n_nodes = 1 AND node_list IS NOT NULL AND "user" IS NOT NULL
  AND start_us IS NOT NULL AND end_us IS NOT NULL AND elapsed_s <= 600
GROUP BY cluster, node_list, start_us // 86400000000
HAVING count(DISTINCT "user") >= 3 AND count(*) >= 5;

-- One row is a user on a node of a partition on a UTC day (days since 1970), by attempts on one node.
-- starts: attempts that began there then and are over; failed: those that ended FAILED, and of these
-- within_30, within_120 and within_600 as many seconds after their start.
-- hit_30, hit_120, hit_600: 1 where at least half of them ended so, else 0.
-- Read only where early_days has rows.
CREATE TABLE user_days AS
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
FROM counted;

-- One row is a sum over user_days. kind: 'node' of a node and partition, 'day' of a partition and
-- day, 'user' of a user; what is no part of the kind is null. n: rows that were summed.
-- keep: no
CREATE TABLE user_day_sums AS
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
FROM user_days GROUP BY cluster, "user";

-- One row is a row of user_days on a node and day of early_days; columns as there.
-- user_n, user_hit_30, user_hit_120, user_hit_600: the same user's rows on that node, of all days.
-- keep: no
CREATE TABLE user_days_suspect AS
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
JOIN own o ON u.cluster = o.cluster AND u.node = o.node AND u."user" = o."user";

-- One row is a node and a UTC day (days since 1970) on which attempts of several users, each on several
-- nodes and this one among them, ended FAILED within 600 s of their start.
CREATE TABLE shared_suspects AS
SELECT a.cluster, a.node, t.start_us // 86400000000 AS day
FROM attempts t JOIN allocations a ON t.attempt_id = a.attempt_id
WHERE t.state = 'FAILED' AND t.n_nodes > 1 AND t."user" IS NOT NULL
  AND t.start_us IS NOT NULL AND t.end_us IS NOT NULL AND t.elapsed_s <= 600
GROUP BY a.cluster, a.node, t.start_us // 86400000000
HAVING count(DISTINCT t."user") >= 3 AND count(*) >= 5;

-- One row is an attempt on several nodes that began on a day of shared_suspects and is over, and a
-- suspect of its day that it held; node is null where it held none.
-- keep: no
CREATE TABLE shared_starts AS
WITH days AS (SELECT DISTINCT cluster, day FROM shared_suspects),
began AS (
  SELECT t.attempt_id, t.cluster, t."user", t.elapsed_s, t.state = 'FAILED' AS failed, d.day
  FROM attempts t JOIN days d ON t.cluster = d.cluster AND t.start_us // 86400000000 = d.day
  WHERE t.n_nodes > 1 AND t."user" IS NOT NULL AND t.end_us IS NOT NULL AND t.elapsed_s IS NOT NULL),
on_suspects AS (
  SELECT b.attempt_id, s.node
  FROM began b JOIN allocations a ON b.attempt_id = a.attempt_id
  JOIN shared_suspects s ON a.cluster = s.cluster AND a.node = s.node AND b.day = s.day)
SELECT b.attempt_id, b.cluster, b."user", b.day, b.elapsed_s, b.failed, o.node
FROM began b LEFT JOIN on_suspects o ON b.attempt_id = o.attempt_id;

-- One row is a user of attempts on several nodes, those that are over. n: days on which some began; hit_30,
-- hit_120, hit_600: of these, where at least half ended FAILED within so many seconds. starts, failed,
-- within_30, within_120, within_600: the attempts. first_day, last_day: of them, since 1970.
-- keep: no
CREATE TABLE shared_users AS
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
FROM days GROUP BY cluster, "user";

-- One row is an attempt that began on a black hole (black_hole_days) between its first early end and its
-- last. early: it ended FAILED within within_s of its start. counted: it is a failure already.
CREATE TABLE black_hole_starts AS
WITH began AS (
  SELECT h.hole, h.cluster, h.node, h.within_s, t.attempt_id, t."user", t.start_us, t.end_us, t.n_gpus, t.n_nodes,
         t.state = 'FAILED' AND t.elapsed_s <= h.within_s AS early
  FROM black_hole_days h
  JOIN allocations a ON h.cluster = a.cluster AND h.node = a.node
  JOIN attempts t ON a.attempt_id = t.attempt_id
  WHERE t.start_us >= h.from_us AND t.start_us < h.to_us AND t.end_us IS NOT NULL),
lasting AS (
  SELECT hole, min(start_us) AS first_us, max(end_us) AS last_us FROM began WHERE early GROUP BY hole)
SELECT b.hole, b.cluster, b.node, b.within_s, b.attempt_id, b."user", b.start_us, b.end_us, b.n_gpus, b.n_nodes, b.early,
       f.attempt_id IS NOT NULL AS counted
FROM began b JOIN lasting l ON b.hole = l.hole
LEFT JOIN all_failures f ON b.attempt_id = f.attempt_id
WHERE b.start_us >= l.first_us AND b.start_us <= l.last_us;

-- One row is a selected attempt that a black hole ended, as in black_hole_starts.
-- keep: no
CREATE TABLE black_hole_ends AS
SELECT b.hole, b.cluster, b.node, b.attempt_id, b."user", b.start_us, b.end_us, b.n_gpus, b.counted
FROM black_hole_starts b JOIN endings e ON b.attempt_id = e.attempt_id
WHERE b.early;
