-- One row is a selected failure whose node ran again, and when the next attempt there began (next_us).
-- Most nodes run again within a day and are met by the day; all that began later is looked at only for
-- the others: a large site has millions of allocations on nodes that have failed.
-- keep: no
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
GROUP BY o.attempt_id
