-- One row is what a chosen attempt ran on the node asked about.
-- keep: no
SELECT start_us, elapsed_s FROM exposure_nodes
WHERE cluster = $asked_cluster AND node = $asked_node AND elapsed_s > 0
