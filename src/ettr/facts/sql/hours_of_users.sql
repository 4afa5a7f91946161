-- One row is a user of a cluster, in all of the logs: held_s, node-seconds of attempts of several nodes.
-- keep: no
SELECT cluster, "user", sum(elapsed_s * n_nodes) AS held_s
FROM attempts WHERE n_nodes > 1 AND elapsed_s > 0 GROUP BY cluster, "user"
