-- Failures of the infrastructure: their causes, and how sure these are.

-- One row is an attempt that its nodes may have ended (a hardware-candidate).
-- named_node: the node that the scheduler names, else the only one that went down in the window where
-- the scheduler says that some node failed; null where neither is known.
CREATE TABLE candidates AS
WITH down AS (
  SELECT attempt_id, max(node) AS down_node FROM all_observed WHERE down
  GROUP BY attempt_id HAVING count(DISTINCT node) = 1)
SELECT e.cluster, e.attempt_id, e.job_id, e.state, e.start_us, e.end_us, e.elapsed_s, e.n_nodes, e.n_gpus,
       e.node_failed, e.named_event,
       coalesce(e.named_node, CASE WHEN e.node_failed THEN d.down_node END) AS named_node
FROM all_endings e LEFT JOIN down d ON e.attempt_id = d.attempt_id
WHERE e.kind = 'hardware-candidate';

-- One row is a hardware-candidate and an episode of a fault that may explain its end.
-- place: from 0, the likeliest first: on the node that the scheduler names, then by rank, then by time.
-- first_us: when it was first observed in the window. episode_id: its first event.
-- code_key: '' where the check has none.
CREATE TABLE causes AS
SELECT o.attempt_id, o.node, o.episode_id, o."check", o.code_key, o.symptom,
       o.domain, o.first_us,
       row_number() OVER (PARTITION BY o.attempt_id ORDER BY
         CASE WHEN o.node <> c.named_node THEN 1 ELSE 0 END, o.rank, o.first_us, o.node, o.episode_id) - 1
         AS place
FROM all_observed o JOIN candidates c ON o.attempt_id = c.attempt_id
WHERE o.fault;

-- One row is an interruption that is a failure of the infrastructure. What speaks for which cause is in
-- causes, and for the scheduler's word named_event, null where no line of its log says it.
-- node: which is blamed, null where no single one can be. symptom: the leading cause.
-- confidence: how sure that is, by the first rule that holds. What each says is in its comment.
-- What it is judged by: lead_symptom, lead_domain, lead_node: the likeliest fault and its node, null where
-- none was observed. lead_us: when it was first observed in the window. n_lead_nodes: on how many of the
-- attempt's nodes. named_node: as in candidates. node_failed: the scheduler says that some node failed.
CREATE TABLE all_failures AS
WITH seen_on AS (
  SELECT attempt_id, symptom, count(DISTINCT node) AS n_nodes FROM causes GROUP BY attempt_id, symptom),
leads AS (
  SELECT c.attempt_id, c.symptom, c.domain, c.node, c.first_us, s.n_nodes
  FROM causes c JOIN seen_on s ON c.attempt_id = s.attempt_id AND c.symptom = s.symptom
  WHERE c.place = 0),
seen AS (
  SELECT c.cluster, c.attempt_id, c.job_id, c.state, c.start_us, c.end_us, c.elapsed_s, c.n_nodes, c.n_gpus,
         c.node_failed, c.named_event, c.named_node, l.symptom AS lead_symptom, l.domain AS lead_domain,
         l.node AS lead_node, l.first_us AS lead_us, l.n_nodes AS n_lead_nodes,
         s.symptom AS state_symptom, s.domain AS state_domain
  FROM candidates c LEFT JOIN leads l ON c.attempt_id = l.attempt_id
  LEFT JOIN end_states s ON c.state = s.state
  WHERE c.node_failed OR l.symptom IS NOT NULL)
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
FROM seen;
