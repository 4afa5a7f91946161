-- One row is an attempt on several nodes that began on a day of shared_suspects.sql and is over, and a
-- suspect of its day that it held; node is null where it held none.
-- keep: no
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
FROM began b LEFT JOIN on_suspects o ON b.attempt_id = o.attempt_id
