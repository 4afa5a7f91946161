-- One row is a failure with its causes and its evidence as text, for expressions: goes with them.
WITH ranked AS (
  SELECT attempt_id, symptom, min(place) AS place FROM causes GROUP BY attempt_id, symptom),
symptoms AS (
  SELECT attempt_id, string_agg(symptom, ',' ORDER BY place) AS causes FROM ranked GROUP BY attempt_id),
seen AS (
  SELECT attempt_id, string_agg(replace(episode_id, ',', ';'), ',' ORDER BY place) AS evidence
  FROM causes GROUP BY attempt_id)
SELECT f.cluster, f.attempt_id, f.job_id, f.state, f.start_us, f.end_us, f.elapsed_s, f.n_nodes, f.n_gpus,
       f.node, f.symptom, f.domain, f.confidence, s.causes,
       CASE WHEN f.named_event IS NOT NULL AND e.evidence IS NOT NULL THEN e.evidence || ',' || f.named_event
            ELSE e.evidence END AS evidence
FROM failures f LEFT JOIN symptoms s ON f.attempt_id = s.attempt_id
LEFT JOIN seen e ON f.attempt_id = e.attempt_id
