-- One row is an attempt that ended against its owner's wish, by its end state (end_states: the truth
-- table) and by what the controller's log says of the end. Columns as in all_endings.sql.
WITH cancels AS (
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
  LEFT JOIN end_reports r ON a.attempt_id = r.attempt_id
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
FROM judged WHERE kind <> 'none'
