-- One row: how many chosen attempts ran of which no log names a node (attempts).
-- keep: no
SELECT count(*) AS attempts FROM chosen c
WHERE c.elapsed_s > 0
  AND NOT EXISTS (SELECT 1 FROM allocations a WHERE a.attempt_id = c.attempt_id)
