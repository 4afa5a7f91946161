-- One row is a node that chosen attempts held; node is null for those that name none.
-- node_s: node-seconds of all; ran_s: of those that ran, null where none did.
-- keep: no
SELECT cluster, node, sum(elapsed_s * n_nodes) AS node_s,
       sum(CASE WHEN elapsed_s > 0 THEN elapsed_s * n_nodes END) AS ran_s
FROM exposure_nodes GROUP BY cluster, node
