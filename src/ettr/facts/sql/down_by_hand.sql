-- One row is a failure of a job whose node was set DOWN when it ended by no word of Slurm's own and by no
-- health check. setter: 'person', or 'unknown' where nothing says whether it was Slurm.
-- reason_key: what was typed first, '' without. names_fault: a fault is known, by it or by another log.
-- keep: no
WITH failed AS (
  SELECT attempt_id, end_us, symptom <> 'unattributed' AS names_fault FROM all_failures WHERE node_failed),
met AS (
  SELECT f.attempt_id, f.names_fault, s.start_us, coalesce(s.reason, '') AS reason_key, h.setter,
         coalesce(s.flags, '') LIKE '%NOT_RESPONDING%' AS silent,
         min(s.start_us) OVER (PARTITION BY f.attempt_id) AS first_us
  FROM failed f
  JOIN allocations a ON f.attempt_id = a.attempt_id
  JOIN node_states s ON a.cluster = s.cluster AND a.node = s.node
  LEFT JOIN set_by h ON s.cluster = h.cluster AND coalesce(s."user", '') = h.user_key
    AND coalesce(s.reason, '') = h.reason_key
  WHERE s.state = 'DOWN' AND s.start_us >= f.end_us - $tolerance_us
    AND s.start_us <= f.end_us + $tolerance_us)
SELECT attempt_id, names_fault, min(setter) AS setter, min(reason_key) AS reason_key
FROM met WHERE start_us = first_us
GROUP BY attempt_id, names_fault
HAVING max(CASE WHEN silent OR setter IS NULL OR setter = 'slurm' THEN 1 ELSE 0 END) = 0
