-- What the controller's log says of jobs and of nodes.

-- One row is a request in the controller's log to cancel a job, and an attempt of the job that ended
-- CANCELLED near it, of which the accounting does not say who cancelled it. A request for an array is
-- one for each of its tasks.
-- keep: no
CREATE TABLE cancel_requests AS
WITH requests AS (
  SELECT cluster, time_us, message,
         CASE WHEN right(job_id, 2) = '_*' THEN left(job_id, length(job_id) - 2) ELSE job_id END AS asked
  FROM whole_events
  WHERE "check" = 'slurmctld' AND code = 'CANCELLED' AND job_id IS NOT NULL),
unknown AS (
  SELECT cluster, attempt_id, end_us, job_id, array_job_id FROM whole_attempts
  WHERE state = 'CANCELLED' AND cancelled_by IS NULL AND end_us IS NOT NULL),
named AS (
  SELECT cluster, attempt_id, end_us, job_id AS asked FROM unknown
  UNION ALL
  SELECT cluster, attempt_id, end_us, array_job_id AS asked FROM unknown WHERE array_job_id IS NOT NULL)
SELECT n.attempt_id, r.time_us, r.message
FROM named n JOIN requests r ON n.cluster = r.cluster AND n.asked = r.asked
WHERE abs(r.time_us - n.end_us) <= $tolerance_us;

-- One row is a line of the controller's log that says something of a node's state, in order of time.
-- keep: no
CREATE TABLE state_lines AS
SELECT cluster, node, time_us, code, message, source, file_id, line
FROM whole_events
WHERE "check" = 'slurmctld' AND node IS NOT NULL
  AND code IN ('DRAIN', 'EPILOG_ERROR', 'NODE_FAILING', 'NODE_DOWN', 'STATE_MAINT', 'CONFIG_MISMATCH',
               'NODE_RESUMED', 'REASON')
ORDER BY time_us, file_id, line;

-- One row is a state of a node, as in node_states, that only the controller's log has: one that meets a
-- state of the same node from another log is that one again. Clocks may differ by a minute.
-- end_us: where no line gives it, when the next job started on the node; null where none did.
CREATE TABLE controller_states AS
WITH returned AS (
  SELECT b.place, min(a.start_us) AS back_us
  FROM controller_begun b JOIN whole_allocations a ON b.cluster = a.cluster AND b.node = a.node
  WHERE b.end_us IS NULL AND a.start_us > b.start_us + 60000000
  GROUP BY b.place),
met AS (
  SELECT DISTINCT b.place
  FROM controller_begun b JOIN ended_states s ON b.cluster = s.cluster AND b.node = s.node
  WHERE (s.end_us IS NULL OR b.start_us <= s.end_us + 60000000)
    AND (b.end_us IS NULL OR b.end_us >= s.start_us - 60000000))
SELECT b.cluster, b.node, b.state, b.flags, b.reason, CAST(NULL AS VARCHAR) AS "user", b.start_us,
       coalesce(b.end_us, r.back_us) AS end_us, b.source, b.file_id, b.line
FROM controller_begun b
LEFT JOIN returned r ON b.place = r.place
LEFT JOIN met m ON b.place = m.place
WHERE m.place IS NULL;
