-- One row is a node of a failed attempt of the selection of which no single node is blamed.
-- keep: no
SELECT attempt_id, cluster, node FROM interrupted_held
WHERE attempt_id IN (SELECT attempt_id FROM failures WHERE node IS NULL)
