-- One row is an attempt that ended against its owner's wish. kind: whose doing the end was
-- (hardware-candidate, preemption, operator or user-failure).
-- start_us: null where it never started; elapsed_s is then 0, and else null where the log has none.
-- node_failed: the scheduler says that a node failed. named_node: which one, null where it names none.
-- named_event: the line of the controller's log that says so, null without one.
-- "user", name, account, "partition", qos, node_list: of the accounting, null where it says none.
-- file_id, line: where it says it.
SELECT e.cluster, e.attempt_id, e.job_id, e.state,
       CASE WHEN p.attempt_id IS NULL THEN e.kind ELSE 'operator' END AS kind,
       e.start_us, e.end_us, e.elapsed_s, e.n_nodes, e.n_gpus,
       e.node_failed AND p.attempt_id IS NULL AS node_failed,
       CASE WHEN p.attempt_id IS NULL THEN e.named_node END AS named_node,
       CASE WHEN p.attempt_id IS NULL THEN e.named_event END AS named_event,
       e."user", e.name, e.account, e."partition", e.qos, e.node_list, e.file_id, e.line
FROM said_endings e LEFT JOIN planned_ends p ON e.attempt_id = p.attempt_id
