-- One row is a stored table that holds rows without a cluster's name ('cluster').
-- keep: no
SELECT 'attempts' AS name FROM (SELECT 1 FROM raw_attempts WHERE cluster = 'cluster' LIMIT 1) t1
UNION ALL
SELECT 'allocations' AS name FROM (SELECT 1 FROM raw_allocations WHERE cluster = 'cluster' LIMIT 1) t2
UNION ALL
SELECT 'nodes' AS name FROM (SELECT 1 FROM raw_nodes WHERE cluster = 'cluster' LIMIT 1) t3
UNION ALL
SELECT 'node_states' AS name FROM (SELECT 1 FROM raw_node_states WHERE cluster = 'cluster' LIMIT 1) t4
UNION ALL
SELECT 'events' AS name FROM (SELECT 1 FROM raw_events WHERE cluster = 'cluster' LIMIT 1) t5
UNION ALL
SELECT 'log_days' AS name FROM (SELECT 1 FROM raw_log_days WHERE cluster = 'cluster' LIMIT 1) t6
