-- One row is a check and code of the events of a cluster.
SELECT DISTINCT cluster, "check", code FROM events
