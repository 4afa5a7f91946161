-- One row is a node that events name, and the first UTC day of one, counted from 1970.
-- keep: no
SELECT cluster, node, min(day) AS first_day FROM event_days GROUP BY cluster, node
