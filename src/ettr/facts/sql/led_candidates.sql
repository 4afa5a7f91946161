-- One row is a failure before it is said how sure that is: a hardware-candidate where the scheduler says
-- that a node failed, or where a fault was observed on one of its nodes in the window.
-- lead_symptom, lead_domain, lead_node: the likeliest fault and its node, null where none was observed.
-- lead_us: when it was first observed in the window. n_lead_nodes: on how many of the attempt's nodes.
WITH seen_on AS (
  SELECT attempt_id, symptom, count(DISTINCT node) AS n_nodes FROM causes GROUP BY attempt_id, symptom),
leads AS (
  SELECT c.attempt_id, c.symptom, c.domain, c.node, c.first_us, s.n_nodes
  FROM causes c JOIN seen_on s ON c.attempt_id = s.attempt_id AND c.symptom = s.symptom
  WHERE c.place = 0)
SELECT c.cluster, c.attempt_id, c.job_id, c.state, c.start_us, c.end_us, c.elapsed_s, c.n_nodes, c.n_gpus,
       c.node_failed, c.named_event, c.named_node, l.symptom AS lead_symptom, l.domain AS lead_domain,
       l.node AS lead_node, l.first_us AS lead_us, l.n_nodes AS n_lead_nodes
FROM candidates c LEFT JOIN leads l ON c.attempt_id = l.attempt_id
WHERE c.node_failed OR l.symptom IS NOT NULL
