-- One row is a failure of an attempt of several nodes that blames none, in all of the logs; "user":
-- whose it was, null where the log does not say.
-- keep: no
SELECT f.attempt_id, f.cluster, a."user"
FROM all_failures f LEFT JOIN attempts a ON f.attempt_id = a.attempt_id
WHERE f.node IS NULL AND f.n_nodes > 1
