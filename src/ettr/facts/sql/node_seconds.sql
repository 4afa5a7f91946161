-- One row is a node that chosen attempts held; node null: nodes that the logs do not name.
-- exposure_s: seconds that they ran on it, null where no log says; n: times that one held it.
-- keep: no
SELECT cluster, node, sum(elapsed_s * n_nodes) AS exposure_s, count(*) AS n FROM exposure_nodes
GROUP BY cluster, node ORDER BY cluster, node
