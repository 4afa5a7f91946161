-- The history of one job.

-- One row is an attempt of the asked job ($job_id), in any cluster or in one ($job_cluster).
CREATE TABLE history_attempts AS
SELECT cluster, attempt_id, job_id, job_id_raw, name, "user", state, exit_code, cancelled_by, submit_us, start_us, end_us,
       elapsed_s, n_gpus, file_id, line
FROM attempts
WHERE job_id = $job_id
  AND (CAST($job_cluster AS VARCHAR) IS NULL OR cluster = CAST($job_cluster AS VARCHAR));

-- One row is a node that an attempt of the asked job held.
CREATE TABLE history_held AS
SELECT a.* FROM allocations a JOIN history_attempts j ON a.attempt_id = j.attempt_id;

-- One row is an event near the ends of the asked job, on its nodes or about it.
-- $look_back_us before its first end, for an episode may have begun days ago, until $look_on_us after its
-- last.
CREATE TABLE history_events AS
WITH reach AS (
  SELECT min(end_us) - $look_back_us AS from_us, max(end_us) + $look_on_us AS to_us FROM history_attempts),
ids AS (
  SELECT job_id FROM history_attempts UNION SELECT job_id_raw FROM history_attempts WHERE job_id_raw <> '')
SELECT e.*
FROM events e CROSS JOIN reach r
WHERE e.time_us >= r.from_us AND e.time_us <= r.to_us
  AND e.cluster IN (SELECT cluster FROM history_attempts)
  AND (e.node IN (SELECT node FROM history_held WHERE node IS NOT NULL)
       OR e.job_id IN (SELECT job_id FROM ids));

-- One row is a state of a node that the asked job held.
CREATE TABLE history_states AS
SELECT s.* FROM node_states s
WHERE s.cluster IN (SELECT cluster FROM history_attempts)
  AND s.node IN (SELECT node FROM history_held WHERE node IS NOT NULL);

-- One row is a kind of events that may concern the asked job, as in event_kinds.
CREATE TABLE history_kinds AS
SELECT "check", code, severity, count(*) AS events FROM history_events GROUP BY "check", code, severity;

-- One row is an attempt of the asked job, or of another that its canceller cancelled: who cancels for
-- several users is an operator.
CREATE TABLE history_relevant AS
SELECT a.* FROM attempts a
WHERE a.attempt_id IN (SELECT attempt_id FROM history_attempts)
   OR a.cancelled_by IN (SELECT cancelled_by FROM history_attempts WHERE cancelled_by <> '');

-- One row is an ended attempt of the asked job, and an event or a state of a node in its window: on a node
-- of it, or a line of the controller's log about it. state: null of an event, which has a check.
-- of_attempt: of a line that names a job, whether it names this one; null where it names none.
-- keep: no
CREATE TABLE history_seen AS
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
WHERE s.start_us <= a.end_us + $after_us AND s.start_us >= a.begins_us;

-- One row is an id of a job: of the tasks of the asked array ($job_base), of the parts of that job, and
-- others that begin like it ($job_stem). kin: not only its beginning is the
-- same. At most 8, kin first.
-- keep: no
CREATE TABLE history_similar AS
SELECT DISTINCT job_id,
       coalesce(array_job_id = $job_base, FALSE) OR coalesce(het_job_id = $job_base, FALSE)
         OR coalesce(job_id_raw = $job_id, FALSE) OR job_id = $job_base AS kin
FROM attempts
WHERE array_job_id = $job_base OR het_job_id = $job_base OR job_id_raw = $job_id OR job_id = $job_base
   OR substr(job_id, 1, length($job_stem)) = $job_stem
ORDER BY kin DESC, job_id LIMIT 8;

-- One row is an attempt of a task of the asked array ($job_id), in any cluster or in one ($job_cluster),
-- or of a job of that id, whose is_task is false.
-- keep: no
CREATE TABLE history_tasks AS
SELECT cluster, attempt_id, job_id, name, "user", state, submit_us, start_us, end_us, elapsed_s, n_gpus,
       coalesce(array_job_id = $job_id, FALSE) AS is_task
FROM attempts
WHERE (array_job_id = $job_id OR job_id = $job_id)
  AND (CAST($job_cluster AS VARCHAR) IS NULL OR cluster = CAST($job_cluster AS VARCHAR));
