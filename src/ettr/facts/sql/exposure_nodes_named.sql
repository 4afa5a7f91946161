-- One row is a node of an attempt, as in exposure_nodes_all.sql, where every held row is of a chosen
-- attempt and no attempt has its nodes counted alone.
-- keep: view
SELECT cluster, node, attempt_id, start_us, elapsed_s, CAST(1 AS BIGINT) AS n_nodes FROM held
