-- One row is an attempt of the asked job, or of another that its canceller cancelled: who cancels for
-- several users is an operator.
SELECT a.* FROM attempts a
WHERE a.attempt_id IN (SELECT attempt_id FROM history_attempts)
   OR a.cancelled_by IN (SELECT cancelled_by FROM history_attempts WHERE cancelled_by <> '')
