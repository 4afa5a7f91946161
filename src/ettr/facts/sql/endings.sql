-- Attempts that ended against their owners' wish, and whose doing that was.

-- One row is an attempt that ended against its owner's wish, by its end state (end_states: the truth
-- table) and by what the controller's log says of the end. kind: whose doing the end was
-- (hardware-candidate, preemption, operator or user-failure).
-- start_us: null where it never started; elapsed_s is then 0, and else null where the log has none.
-- node_failed: the scheduler says that a node failed. named_node: which one, null where it names none.
-- named_event: the line of the controller's log that says so, null without one.
-- "user", name, account, "partition", qos, node_list: of the accounting, null where it says none.
-- file_id, line: where it says it.
-- What the controller's log says of an end is NODE_FAIL, JOB_LOST (its node came back without it) or
-- PREEMPTED, and maybe a node. A requeue keeps the id of a job: a line is of the attempt whose end is
-- nearest, at most $tolerance_us away.
CREATE TABLE said_endings AS
WITH lines AS (
  SELECT cluster, job_id, code, node, event_id, time_us FROM events
  WHERE "check" = 'slurmctld' AND code IN ('NODE_FAIL', 'JOB_LOST', 'PREEMPTED') AND job_id IS NOT NULL),
ends AS (
  SELECT cluster, attempt_id, job_id, start_us, end_us FROM attempts WHERE end_us IS NOT NULL
  UNION ALL
  -- array tasks and parts of jobs have two ids
  SELECT cluster, attempt_id, job_id_raw, start_us, end_us FROM attempts
  WHERE end_us IS NOT NULL AND job_id_raw <> job_id),
near AS (
  SELECT e.attempt_id, l.code, l.node, l.event_id, abs(l.time_us - e.end_us) AS distance_us,
         row_number() OVER (PARTITION BY l.event_id
                            ORDER BY abs(l.time_us - e.end_us), e.end_us, e.attempt_id) AS place
  FROM lines l JOIN ends e ON l.cluster = e.cluster AND l.job_id = e.job_id
  WHERE abs(l.time_us - e.end_us) <= $tolerance_us
    AND (e.start_us IS NULL OR e.start_us <= l.time_us + $tolerance_us)),
best AS (
  SELECT attempt_id, code, node, event_id, row_number() OVER (PARTITION BY attempt_id ORDER BY
           CASE WHEN code = 'PREEMPTED' THEN 1 ELSE 0 END, distance_us, event_id) AS place
  FROM near WHERE place = 1),
reports AS (
  SELECT attempt_id, code AS said, node AS said_node, event_id AS said_event FROM best WHERE place = 1),
cancels AS (
  SELECT a.cluster, a.cancelled_by, a."user"
  FROM attempts a LEFT JOIN end_states s ON a.state = s.state
  WHERE a.cancelled_by IS NOT NULL AND a.end_us IS NOT NULL AND NOT coalesce(s.open_or_done, FALSE)),
others AS (  -- who cancelled jobs of several users is no owner, though no log says who it is
  SELECT cluster, cancelled_by FROM cancels
  GROUP BY cluster, cancelled_by HAVING count(DISTINCT "user") > 1),
ended AS (
  SELECT a.cluster, a.attempt_id, a.job_id, a.state, a.start_us, a.end_us, a.n_nodes, a.n_gpus,
         a."user", a.name, a.account, a."partition", a.qos, a.node_list, a.file_id, a.line,
         a.failed_node, r.said, r.said_node, r.said_event, s.kind AS by_state, s.by_owner,
         CASE WHEN a.start_us IS NULL THEN 0.0 ELSE a.elapsed_s END AS elapsed_s,
         coalesce(s.sure, FALSE) OR a.failed_node IS NOT NULL
           OR coalesce(r.said IN ('NODE_FAIL', 'JOB_LOST'), FALSE) AS node_failed,
         -- FAILED although a step was killed for memory: 125 is Slurm's own mark, and no signal
         a.state = 'FAILED' AND (coalesce(a.step_state = 'OUT_OF_MEMORY', FALSE)
           OR coalesce(a.derived_exit_signal = 125, FALSE) OR coalesce(a.exit_signal = 125, FALSE))
           AS out_of_memory,
         -- the owner's own act, as far as the row shows it: a cancel, or a requeue by exit code
         (a.state = 'CANCELLED' AND o.cancelled_by IS NULL
           AND NOT coalesce(a.cancelled_by IN ('0', 'root'), FALSE))
           OR (a.state IN ('REQUEUED', 'REQUEUE_HOLD') AND coalesce(a.exit_code > 0, FALSE)) AS is_owners
  FROM attempts a
  LEFT JOIN end_states s ON a.state = s.state
  LEFT JOIN others o ON a.cluster = o.cluster AND a.cancelled_by = o.cancelled_by
  LEFT JOIN reports r ON a.attempt_id = r.attempt_id
  WHERE a.end_us IS NOT NULL AND NOT coalesce(s.open_or_done, FALSE)),
judged AS (
  SELECT cluster, attempt_id, job_id, state, start_us, end_us, elapsed_s, n_nodes, n_gpus, node_failed,
         "user", name, account, "partition", qos, node_list, file_id, line,
         failed_node, said, said_node, said_event,
         CASE WHEN node_failed THEN 'hardware-candidate'
              WHEN coalesce(said = 'PREEMPTED', FALSE) THEN 'preemption'
              WHEN out_of_memory THEN 'user-failure'
              WHEN is_owners THEN coalesce(by_owner, 'none')
              ELSE coalesce(by_state, 'none') END AS kind
  FROM ended)
SELECT cluster, attempt_id, job_id, state, kind, start_us, end_us, elapsed_s, n_nodes, n_gpus, node_failed,
       coalesce(failed_node, CASE WHEN said IN ('NODE_FAIL', 'JOB_LOST') THEN said_node END,
                CASE WHEN node_failed AND n_nodes = 1 THEN node_list END) AS named_node,
       CASE WHEN said IN ('NODE_FAIL', 'JOB_LOST') THEN said_event END AS named_event,
       "user", name, account, "partition", qos, node_list, file_id, line
FROM judged WHERE kind <> 'none';

-- One row is an attempt that an administrator ended for planned work, though Slurm writes NODE_FAIL: a
-- node of it was set DOWN at that time, for a planned reason at first, none of its nodes stopped
-- responding then, and no fault was seen on one: a node that went silent or showed a fault broke,
-- whatever was written about it later.
CREATE TABLE planned_ends AS
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
   AND max(CASE WHEN silent THEN 1 ELSE 0 END) = 0;

-- One row is an attempt that ended against its owner's wish, as in said_endings: planned ends are an operator's.
CREATE TABLE endings_with_planned AS
SELECT e.cluster, e.attempt_id, e.job_id, e.state,
       CASE WHEN p.attempt_id IS NULL THEN e.kind ELSE 'operator' END AS kind,
       e.start_us, e.end_us, e.elapsed_s, e.n_nodes, e.n_gpus,
       e.node_failed AND p.attempt_id IS NULL AS node_failed,
       CASE WHEN p.attempt_id IS NULL THEN e.named_node END AS named_node,
       CASE WHEN p.attempt_id IS NULL THEN e.named_event END AS named_event,
       e."user", e.name, e.account, e."partition", e.qos, e.node_list, e.file_id, e.line
FROM said_endings e LEFT JOIN planned_ends p ON e.attempt_id = p.attempt_id;

-- One row is a node that an interrupted attempt held, in all of the logs. kind, attempt_end_us: of the
-- attempt. Kept: a dozen questions ask which nodes failures were on, and each would look through all.
CREATE TABLE interrupted_held AS
SELECT a.cluster, a.node, a.attempt_id, a.start_us, a.end_us, a.elapsed_s, e.kind, e.end_us AS attempt_end_us
FROM allocations a JOIN all_endings e ON a.attempt_id = e.attempt_id;

-- One row is a node of an attempt that a failed node ended, in all of the logs. end_us: its end.
-- keep: no
CREATE TABLE ended_by_nodes AS
SELECT h.attempt_id, h.cluster, h.node, e.end_us
FROM interrupted_held h JOIN all_endings e ON h.attempt_id = e.attempt_id
WHERE e.node_failed AND h.node IS NOT NULL;
