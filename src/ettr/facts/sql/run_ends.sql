-- One row is an attempt of a listed run that ended against its owner's wish. confidence: how sure its
-- cause is, where the infrastructure failed it; else null.
-- keep: no
SELECT m.place, m.attempt_id, f.confidence
FROM run_members m
JOIN all_endings e ON m.attempt_id = e.attempt_id
LEFT JOIN all_failures f ON m.attempt_id = f.attempt_id
ORDER BY m.place, m.attempt_id
