-- One row is a failure of the selection whose attempt held one node. node: the one that it blames,
-- null where no single one can be. file_id, line: where the accounting has the attempt.
-- keep: no
WITH on_node AS (
  SELECT DISTINCT attempt_id FROM interrupted_held
  WHERE cluster = $asked_cluster AND node = $asked_node)
SELECT f.attempt_id, f.end_us, f.job_id, a."user", f.state, f.n_nodes, f.n_gpus, f.symptom,
       f.confidence, f.node, f.evidence, a.file_id, a.line
FROM failure_texts f
JOIN on_node o ON f.attempt_id = o.attempt_id
LEFT JOIN attempts a ON f.attempt_id = a.attempt_id
