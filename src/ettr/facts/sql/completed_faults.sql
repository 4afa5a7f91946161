-- One row is a chosen attempt that completed and a symptom that was observed in its window by coincidence.
-- n_nodes, began: as in completed_sizes.sql.
-- keep: no
SELECT DISTINCT c.attempt_id, c.n_nodes, c.start_us IS NOT NULL AS began, o.symptom
FROM all_observed o JOIN chosen c ON o.attempt_id = c.attempt_id
WHERE o.fault AND c.state = 'COMPLETED' AND c.end_us IS NOT NULL AND c.belongs
