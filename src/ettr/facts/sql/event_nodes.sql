-- One row is a node that events name.
-- keep: view
SELECT DISTINCT cluster, node FROM event_days
