-- Faults near ends by coincidence: how often they are met where nothing failed.

-- One row is a node and a symptom: fault episodes that began on the node in the quiet part of a run there,
-- outside every window that could blame them. A node that two jobs share is met once in each.
-- n: how many; length_s: seconds that they lasted, all together.
-- Joined by node and day, never by node alone. Runs have no ids here: to read those of all takes longer
-- than the rest. Of the runs on one node from one moment to another, so many are suspects (attempts that
-- their nodes may have ended) as the suspects have there.
-- keep: no
CREATE TABLE background AS
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
met_runs AS (SELECT DISTINCT cluster, node, start_us, end_us FROM met),
suspects AS (
  SELECT h.cluster, h.node, h.start_us, h.end_us, count(*) AS n_suspect
  FROM interrupted_held h
  JOIN met_runs r ON h.cluster = r.cluster AND h.node = r.node AND h.start_us = r.start_us AND h.end_us = r.end_us
  WHERE h.kind = 'hardware-candidate' AND h.elapsed_s > 0
  GROUP BY h.cluster, h.node, h.start_us, h.end_us),
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
FROM counted GROUP BY cluster, node, symptom HAVING sum(n) > 0;

-- One row is a node: whole seconds from the start to the end of all that ran and ended there.
-- keep: no
CREATE TABLE node_spans AS
WITH ran AS (
  SELECT cluster, node, end_us // 1000000 - start_us // 1000000 AS ran_s
  FROM allocations WHERE elapsed_s > 0)
SELECT cluster, node, CAST(sum(ran_s) AS DOUBLE) AS span_s FROM ran WHERE ran_s > 0 GROUP BY cluster, node;

-- One row is a node: seconds of the attempts that it may have ended in which it could be blamed.
-- keep: no
CREATE TABLE loud_spans AS
WITH ran AS (
  SELECT cluster, node, end_us // 1000000 - start_us // 1000000 AS ran_s,
         (end_us - $before_us) // 1000000 - start_us // 1000000 AS quiet_s
  FROM interrupted_held WHERE kind = 'hardware-candidate' AND elapsed_s > 0)
SELECT cluster, node,
       CAST(sum(ran_s - CASE WHEN quiet_s > 0 THEN quiet_s ELSE 0 END) AS DOUBLE) AS loud_s
FROM ran WHERE ran_s > 0 GROUP BY cluster, node;

-- One row is a size and a reach of the selected attempts that their nodes may have ended, though the
-- scheduler does not say so. n: how many. explained: a fault was observed in their window.
-- large: of more than $above_gpus GPUs. reach_s: seconds in which a check could blame them; one of unknown
-- runtime may have run for the whole window.
-- keep: no
CREATE TABLE blamed_by_checks AS
WITH faulty AS (SELECT DISTINCT attempt_id FROM all_observed WHERE fault),
sized AS (
  SELECT e.n_nodes, coalesce(e.n_gpus > $above_gpus, FALSE) AS large, f.attempt_id IS NOT NULL AS explained,
         round(CASE WHEN e.elapsed_s < $before_us / 1000000.0 THEN e.elapsed_s
                    ELSE $before_us / 1000000.0 END) + $after_us / 1000000.0 AS reach_s
  FROM endings e LEFT JOIN faulty f ON e.attempt_id = f.attempt_id
  WHERE e.kind = 'hardware-candidate' AND NOT e.node_failed)
SELECT n_nodes, large, explained, CAST(reach_s AS DOUBLE) AS reach_s, count(*) AS n
FROM sized GROUP BY n_nodes, large, explained, reach_s;

-- One row is a number of nodes of the chosen attempts that completed; null where the log has none.
-- began: whether it says when they started. n: how many they were.
-- keep: no
CREATE TABLE completed_sizes AS
SELECT n_nodes, start_us IS NOT NULL AS began, count(*) AS n
FROM chosen WHERE state = 'COMPLETED' AND end_us IS NOT NULL AND belongs
GROUP BY n_nodes, start_us IS NOT NULL;

-- One row is a chosen attempt that completed and a symptom that was observed in its window by coincidence.
-- n_nodes, began: as in completed_sizes.
-- keep: no
CREATE TABLE completed_faults AS
SELECT DISTINCT c.attempt_id, c.n_nodes, c.start_us IS NOT NULL AS began, o.symptom
FROM all_observed o JOIN chosen c ON o.attempt_id = c.attempt_id
WHERE o.fault AND c.state = 'COMPLETED' AND c.end_us IS NOT NULL AND c.belongs;
