-- One row is an attempt that an administrator ended for planned work, though Slurm writes NODE_FAIL: a
-- node of it was set DOWN at that time, for a planned reason at first, none of its nodes stopped
-- responding then, and no fault was seen on one: a node that went silent or showed a fault broke,
-- whatever was written about it later.
WITH known AS (  -- elsewhere nobody planned anything, and no attempt is looked at
  SELECT DISTINCT s.cluster FROM node_states s JOIN reasons r ON s.reason = r.reason_key
  WHERE s.state = 'DOWN' AND r.planned AND r.reason_key <> ''),
faulty AS (SELECT DISTINCT attempt_id FROM all_observed WHERE fault),
failed AS (
  SELECT e.attempt_id, e.end_us
  FROM said_endings e JOIN known k ON e.cluster = k.cluster
  LEFT JOIN faulty f ON e.attempt_id = f.attempt_id
  WHERE e.node_failed AND f.attempt_id IS NULL),
met AS (
  SELECT f.attempt_id, s.start_us, coalesce(s.flags, '') LIKE '%NOT_RESPONDING%' AS silent,
         coalesce(r.planned AND r.reason_key <> '', FALSE) AS planned,
         -- the first of them ended the job: what was written minutes later is another outage
         min(s.start_us) OVER (PARTITION BY f.attempt_id, s.cluster, s.node) AS first_us
  FROM failed f
  JOIN allocations a ON f.attempt_id = a.attempt_id
  JOIN node_states s ON a.cluster = s.cluster AND a.node = s.node
  LEFT JOIN reasons r ON coalesce(s.reason, '') = r.reason_key
  WHERE s.state = 'DOWN' AND s.start_us >= f.end_us - $tolerance_us
    AND s.start_us <= f.end_us + $tolerance_us)
SELECT attempt_id FROM met GROUP BY attempt_id
HAVING max(CASE WHEN planned AND NOT silent AND start_us = first_us THEN 1 ELSE 0 END) = 1
   AND max(CASE WHEN silent THEN 1 ELSE 0 END) = 0
