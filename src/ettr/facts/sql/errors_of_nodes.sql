-- One row is a day of `error_days` of one of the nodes asked about.
-- keep: no
SELECT d.node, d.day FROM error_days d JOIN asked_nodes a ON d.node = a.node
WHERE d.cluster = $asked_cluster
