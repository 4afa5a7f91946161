-- One row is a user of a cluster, in all of the logs: held_s, node-seconds of attempts of several nodes.
-- keep: no
SELECT cluster, "user", sum(coalesce(parts_node_s, elapsed_s * n_nodes)) AS held_s
FROM all_attempts WHERE n_nodes > 1 AND elapsed_s > 0 GROUP BY cluster, "user"
