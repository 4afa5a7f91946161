-- One row is an ended attempt of the asked job, and an event or a state of a node in its window: on a node
-- of it, or a line of the controller's log about it. state: null of an event, which has a check.
-- of_attempt: of a line that names a job, whether it names this one; null where it names none.
-- keep: no
WITH ended AS (
  SELECT attempt_id, job_id, job_id_raw, cluster, end_us,
         CASE WHEN start_us > end_us - $before_us THEN start_us ELSE end_us - $before_us END AS begins_us
  FROM history_attempts WHERE end_us IS NOT NULL),
places AS (SELECT DISTINCT attempt_id, node FROM history_held WHERE node IS NOT NULL),
stated AS (
  SELECT 'node_state/' || cluster || '/' || node || '/' || state || '/' || CAST(start_us AS VARCHAR) AS event_id,
         node, start_us, state, reason, file_id, line
  FROM history_states)
SELECT a.attempt_id, e.event_id, e.node, e.time_us, e."check", e.code, e.entity, e.severity, e.message,
       CAST(NULL AS VARCHAR) AS state, e.job_id = a.job_id OR coalesce(e.job_id = a.job_id_raw, FALSE) AS of_attempt,
       e.file_id, e.line
FROM ended a JOIN history_events e
  ON e.time_us <= a.end_us + $after_us
 AND CASE WHEN e.time_end_us > e.time_us THEN e.time_end_us ELSE e.time_us END >= a.begins_us
LEFT JOIN places p ON p.attempt_id = a.attempt_id AND p.node = e.node
WHERE p.node IS NOT NULL
   OR (e."check" = 'slurmctld' AND (e.job_id = a.job_id OR coalesce(e.job_id = a.job_id_raw, FALSE)))
UNION ALL
SELECT a.attempt_id, s.event_id, s.node, s.start_us, CAST(NULL AS VARCHAR), CAST(NULL AS VARCHAR),
       CAST(NULL AS VARCHAR), CAST(NULL AS VARCHAR), s.reason, s.state, FALSE, s.file_id, s.line
FROM ended a JOIN places p ON p.attempt_id = a.attempt_id JOIN stated s ON s.node = p.node
WHERE s.start_us <= a.end_us + $after_us AND s.start_us >= a.begins_us
