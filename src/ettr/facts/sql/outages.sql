-- Outages of nodes, and failures that one who worked on a node caused.

-- One row is a failure of a job whose node was set DOWN when it ended by no word of Slurm's own and by no
-- health check. setter: 'person', or 'unknown' where nothing says whether it was Slurm.
-- reason_key: what was typed first, '' without. names_fault: a fault is known, by it or by another log.
-- keep: no
CREATE TABLE down_by_hand AS
WITH failed AS (
  SELECT attempt_id, end_us, symptom <> 'unattributed' AS names_fault FROM all_failures WHERE node_failed),
met AS (
  SELECT f.attempt_id, f.names_fault, s.start_us, coalesce(s.reason, '') AS reason_key, h.setter,
         coalesce(s.flags, '') LIKE '%NOT_RESPONDING%' AS silent,
         min(s.start_us) OVER (PARTITION BY f.attempt_id) AS first_us
  FROM failed f
  JOIN interrupted_held a ON f.attempt_id = a.attempt_id
  JOIN node_states s ON a.cluster = s.cluster AND a.node = s.node
  LEFT JOIN set_by h ON s.cluster = h.cluster AND coalesce(s."user", '') = h.user_key
    AND coalesce(s.reason, '') = h.reason_key
  WHERE s.state = 'DOWN' AND s.start_us >= f.end_us - $tolerance_us
    AND s.start_us <= f.end_us + $tolerance_us)
SELECT attempt_id, names_fault, min(setter) AS setter, min(reason_key) AS reason_key
FROM met WHERE start_us = first_us
GROUP BY attempt_id, names_fault
HAVING max(CASE WHEN silent OR setter IS NULL OR setter = 'slurm' THEN 1 ELSE 0 END) = 0;

-- One row is a selected failure whose node ran again, and when the next attempt there began (next_us).
-- Most nodes run again within a day and are met by the day; all that began later is looked at only for
-- the others: a large site has millions of allocations on nodes that have failed.
-- keep: no
CREATE TABLE next_on_nodes AS
WITH ended AS (
  SELECT cluster, node, attempt_id, end_us, coalesce(start_us = end_us, FALSE) AS no_length,
         end_us // 86400000000 AS day
  FROM failures WHERE node IS NOT NULL),
near AS (
  SELECT cluster, node, attempt_id, end_us, no_length, day FROM ended
  UNION ALL
  SELECT cluster, node, attempt_id, end_us, no_length, day + 1 AS day FROM ended),
soon AS (
  SELECT n.attempt_id, min(a.start_us) AS next_us
  FROM near n
  JOIN allocations a
    ON n.cluster = a.cluster AND n.node = a.node AND n.day = a.start_us // 86400000000
  -- an attempt of no length is not its own next one
  WHERE a.start_us > n.end_us OR (a.start_us = n.end_us AND NOT n.no_length)
  GROUP BY n.attempt_id),
others AS (
  SELECT e.* FROM ended e LEFT JOIN soon s ON e.attempt_id = s.attempt_id
  WHERE s.attempt_id IS NULL)
SELECT attempt_id, next_us FROM soon
UNION ALL
SELECT o.attempt_id, min(a.start_us) AS next_us
FROM others o JOIN allocations a ON o.cluster = a.cluster AND o.node = a.node
WHERE a.start_us > o.end_us OR (a.start_us = o.end_us AND NOT o.no_length)
GROUP BY o.attempt_id;

-- One row is an allocation of a node during an outage of it. outage: the outage's place.
-- The outage is in all buckets in which such an allocation may have begun (`outage_buckets`); a
-- second is allowed for, since whole seconds are compared later.
-- keep: no
CREATE TABLE held_in_outages AS
SELECT b.outage, a.start_us, a.end_us, a.elapsed_s
FROM allocations a
JOIN outage_buckets b
  ON a.cluster = b.cluster AND a.node = b.node AND a.start_us // $bucket_us = b.bucket
WHERE a.start_us < b.to_us + 1000000
  AND coalesce(a.end_us, a.start_us + CAST(a.elapsed_s * 1000000 AS BIGINT) + 1000000) > b.from_us;

-- One row is a fault of a node that a log records as such. code: its kind, null where none is said.
-- time_end_us: when it was over, null where that is not said. node: null where none is named.
-- keep: no
CREATE TABLE recorded_faults AS
SELECT cluster, node, code, source, time_us, time_end_us
FROM events WHERE "check" IN ('infinitehbd', 'lanl', 'fault');
