-- One row is what a chosen attempt ran on a node that was repaired.
-- keep: no
SELECT e.cluster, e.node, e.start_us, e.elapsed_s
FROM exposure_nodes e JOIN repaired_nodes r ON e.cluster = r.cluster AND e.node = r.node
WHERE e.elapsed_s > 0
