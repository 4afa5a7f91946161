-- One row is an attempt that its nodes may have ended (a hardware-candidate).
-- named_node: the node that the scheduler names, else the only one that went down in the window where
-- the scheduler says that some node failed; null where neither is known.
WITH down AS (
  SELECT attempt_id, max(node) AS down_node FROM all_observed WHERE down
  GROUP BY attempt_id HAVING count(DISTINCT node) = 1)
SELECT e.cluster, e.attempt_id, e.job_id, e.state, e.start_us, e.end_us, e.elapsed_s, e.n_nodes, e.n_gpus,
       e.node_failed, e.named_event,
       coalesce(e.named_node, CASE WHEN e.node_failed THEN d.down_node END) AS named_node
FROM all_endings e LEFT JOIN down d ON e.attempt_id = d.attempt_id
WHERE e.kind = 'hardware-candidate'
