-- One row is a group of ended attempts of the selection that their nodes may have ended and in whose
-- window no error was found: n_attempts of a cluster, of one UTC day.
-- node_failed: the scheduler says so; named: 1 where any node of theirs is named; silent: 1 where one
-- of these was not heard on that day or the day before; deaf: 1 where the logs of one are deaf to its GPUs.
-- keep: no
WITH faulted AS (SELECT DISTINCT attempt_id FROM all_observed WHERE fault),
unexplained AS (
  SELECT e.attempt_id, e.cluster, e.node_failed,
         CAST(floor(e.end_us / 86400000000.0) AS BIGINT) AS day
  FROM endings e LEFT JOIN faulted f ON e.attempt_id = f.attempt_id
  WHERE e.kind = 'hardware-candidate' AND f.attempt_id IS NULL),
places AS (
  SELECT u.attempt_id,
         max(CASE WHEN d.day IS NULL AND b.day IS NULL THEN 1 ELSE 0 END) AS silent,
         max(CASE WHEN x.node IS NOT NULL THEN 1 ELSE 0 END) AS deaf
  FROM interrupted_held h
  JOIN unexplained u ON h.attempt_id = u.attempt_id
  LEFT JOIN error_days d ON h.cluster = d.cluster AND h.node = d.node AND u.day = d.day
  LEFT JOIN error_days b ON h.cluster = b.cluster AND h.node = b.node AND u.day = b.day + 1
  LEFT JOIN deaf_nodes x ON h.cluster = x.cluster AND h.node = x.node
  WHERE h.node IS NOT NULL
  GROUP BY u.attempt_id)
SELECT u.cluster, u.day, u.node_failed, CASE WHEN p.attempt_id IS NULL THEN 0 ELSE 1 END AS named,
       coalesce(p.silent, 0) AS silent, coalesce(p.deaf, 0) AS deaf, count(*) AS n_attempts
FROM unexplained u LEFT JOIN places p ON u.attempt_id = p.attempt_id
GROUP BY u.cluster, u.day, u.node_failed, CASE WHEN p.attempt_id IS NULL THEN 0 ELSE 1 END,
         coalesce(p.silent, 0), coalesce(p.deaf, 0)
