-- One row is a node that failed attempts of the selection held, whichever node is blamed: n_failed.
-- keep: no
SELECT cluster, node, count(*) AS n_failed FROM interrupted_held
WHERE attempt_id IN (SELECT attempt_id FROM failures) GROUP BY cluster, node
