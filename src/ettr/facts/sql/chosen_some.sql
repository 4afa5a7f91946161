-- One row at most: a selected attempt, where there is any.
-- keep: no
SELECT attempt_id FROM chosen LIMIT 1
