-- One row is a failure of the selection that blames a node, and whose it was.
-- keep: no
SELECT f.cluster, f.node, a."user", f.end_us
FROM failures f LEFT JOIN attempts a ON f.attempt_id = a.attempt_id
WHERE f.node IS NOT NULL
