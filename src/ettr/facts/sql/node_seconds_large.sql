-- One row is a node that chosen attempts of more than $above_gpus GPUs ran on, as in node_seconds.sql.
-- keep: no
SELECT cluster, node, sum(elapsed_s * n_nodes) AS exposure_s FROM exposure_nodes
WHERE attempt_id IN (SELECT attempt_id FROM exposure WHERE n_gpus > $above_gpus)
GROUP BY cluster, node HAVING sum(elapsed_s * n_nodes) > 0 ORDER BY cluster, node
