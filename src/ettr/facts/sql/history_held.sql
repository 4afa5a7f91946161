-- One row is a node that an attempt of the asked job held.
SELECT a.* FROM allocations a JOIN history_attempts j ON a.attempt_id = j.attempt_id
