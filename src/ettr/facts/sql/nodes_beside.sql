-- One row is a node of a failed attempt of the selection that held the node asked about.
-- has_error: 1 where an error was found on it in the window around the attempt's end.
-- keep: no
WITH mine AS (
  SELECT DISTINCT attempt_id FROM interrupted_held
  WHERE cluster = $asked_cluster AND node = $asked_node
    AND attempt_id IN (SELECT attempt_id FROM failures))
SELECT h.attempt_id, h.node, 0 AS has_error
FROM interrupted_held h JOIN mine m ON h.attempt_id = m.attempt_id
UNION
SELECT o.attempt_id, o.node, 1 AS has_error
FROM all_observed o JOIN mine m ON o.attempt_id = m.attempt_id
WHERE o.fault
