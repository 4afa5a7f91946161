-- One row is a node and a symptom: fault episodes that began on the node in the quiet part of a run there,
-- outside every window that could blame them. A node that two jobs share is met once in each.
-- n: how many; length_s: seconds that they lasted, all together.
-- Joined by node and day, never by node alone. Runs have no ids here: to read those of all takes longer
-- than the rest. Of the runs on one node from one moment to another, so many are suspects (attempts that
-- their nodes may have ended) as the suspects have there.
-- keep: no
WITH began AS (  -- several things of a node may show the same at the same time
  SELECT cluster, node, symptom, first_us AS began_us, last_us // 1000000 - first_us // 1000000 AS length_s,
         first_us // 86400000000 AS day, count(*) AS episodes
  FROM all_episodes
  GROUP BY cluster, node, symptom, first_us, last_us // 1000000 - first_us // 1000000),
begun AS (
  SELECT cluster, node, start_us, end_us, start_us // 86400000000 AS day, end_us // 86400000000 AS last_day
  FROM allocations WHERE start_us IS NOT NULL AND end_us IS NOT NULL AND elapsed_s > 0),
days AS (  -- most runs end on the day on which they began: only the others are on a list of days
  SELECT cluster, node, start_us, end_us, day FROM begun
  UNION ALL
  SELECT cluster, node, start_us, end_us, unnest(range(day + 1, last_day + 1)) AS day
  FROM begun WHERE last_day > day),
met AS (
  SELECT d.cluster, d.node, d.start_us, d.end_us, b.symptom, b.began_us, b.length_s, b.episodes,
         count(*) AS runs
  FROM began b JOIN days d ON b.cluster = d.cluster AND b.node = d.node AND b.day = d.day
  WHERE b.began_us > d.start_us AND b.began_us <= d.end_us
  GROUP BY d.cluster, d.node, d.start_us, d.end_us, b.symptom, b.began_us, b.length_s, b.episodes),
suspects AS (
  SELECT cluster, node, start_us, end_us, count(*) AS n_suspect
  FROM interrupted_held
  WHERE kind = 'hardware-candidate' AND start_us IS NOT NULL AND end_us IS NOT NULL AND elapsed_s > 0
  GROUP BY cluster, node, start_us, end_us),
counted AS (
  SELECT m.cluster, m.node, m.symptom, m.length_s, m.episodes * (
           (m.runs - coalesce(s.n_suspect, 0))
             * CASE WHEN m.end_us // 1000000 > m.start_us // 1000000 THEN 1 ELSE 0 END
           + coalesce(s.n_suspect, 0)
             * CASE WHEN (m.end_us - $before_us) // 1000000 > m.start_us // 1000000
                     AND m.began_us <= m.end_us - $before_us THEN 1 ELSE 0 END) AS n
  FROM met m LEFT JOIN suspects s
    ON m.cluster = s.cluster AND m.node = s.node AND m.start_us = s.start_us AND m.end_us = s.end_us)
SELECT cluster, node, symptom, CAST(sum(n) AS BIGINT) AS n, CAST(sum(n * length_s) AS DOUBLE) AS length_s
FROM counted GROUP BY cluster, node, symptom HAVING sum(n) > 0
