-- One row is what a chosen attempt ran on a node. node: with the cluster before it, null where the logs
-- name no node; n_nodes is then the number of its nodes, else 1.
-- keep: no
SELECT cluster || '/' || node AS node, start_us, elapsed_s, n_nodes FROM exposure_nodes
