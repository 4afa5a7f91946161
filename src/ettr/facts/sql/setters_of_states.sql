-- One row is a user under whom a log has states of a cluster's nodes, with a reason. n: how many states.
-- "user": null where no log says who. reason_key: '' without one.
-- keep: no
SELECT cluster, "user", coalesce(reason, '') AS reason_key, count(*) AS n
FROM node_states WHERE state = 'DOWN' GROUP BY cluster, "user", coalesce(reason, '')
