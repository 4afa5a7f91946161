-- One row is an interruption that is a failure of the infrastructure. What speaks for which cause is in
-- causes.sql, and for the scheduler's word named_event, null where no line of its log says it.
-- node: which is blamed, null where no single one can be. symptom: the leading cause.
-- confidence: how sure that is, by the first rule that holds. What each says is in its comment.
SELECT cluster, attempt_id, job_id, state, start_us, end_us, elapsed_s, n_nodes, n_gpus,
       coalesce(named_node, CASE WHEN n_lead_nodes = 1 THEN lead_node END) AS node,
       coalesce(lead_symptom, state_symptom, 'unattributed') AS symptom,
       coalesce(CASE WHEN lead_symptom IS NOT NULL THEN lead_domain ELSE state_domain END, 'unknown') AS domain,
       CASE
         -- nothing was seen, and the end state says it all: a node that did not start
         WHEN lead_symptom IS NULL AND state_symptom IS NOT NULL THEN 'medium'
         -- nothing was seen (`unattributed`)
         WHEN lead_symptom IS NULL THEN 'none'
         -- the scheduler names the node, and the leading fault was seen on it
         WHEN lead_node = named_node THEN 'high'
         -- the scheduler names a node, and faults were seen only on others
         WHEN named_node IS NOT NULL THEN 'low'
         -- the scheduler says that some node failed, and a fault was seen on one
         WHEN node_failed THEN 'medium'
         -- a FAILED job; the leading fault was seen before the job ended
         WHEN lead_us <= end_us THEN 'medium'
         -- a FAILED job; the leading fault was seen only after the end: a cause precedes its effect, though checks may be minutes late
         WHEN lead_us > end_us THEN 'low'
         ELSE 'none'
       END AS confidence,
       node_failed, named_event
FROM (
  SELECT c.*, s.symptom AS state_symptom, s.domain AS state_domain
  FROM led_candidates c LEFT JOIN end_states s ON c.state = s.state
) AS seen
