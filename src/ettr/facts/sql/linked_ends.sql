-- One row is an attempt that is asked about (linked) and ended in the period, of the selected jobs.
-- keep: no
SELECT a.attempt_id FROM asked_ends a JOIN linked l ON a.attempt_id = l.attempt_id
