-- One row is a node that chosen attempts ran on, with the seconds of it; node null: nodes that the
-- logs do not name.
-- keep: no
SELECT cluster, node, sum(elapsed_s * n_nodes) AS exposure_s FROM exposure_nodes
GROUP BY cluster, node HAVING sum(elapsed_s * n_nodes) > 0 ORDER BY cluster, node
