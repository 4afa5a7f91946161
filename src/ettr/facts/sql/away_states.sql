-- One row is a state of a node in which it is no part of the fleet: powered down, or not there yet.
-- end_us: null where no log ends it.
-- keep: no
SELECT cluster, node, start_us, end_us
FROM node_states WHERE state IN ('POWERED_DOWN', 'POWERING_DOWN', 'FUTURE') AND node IS NOT NULL
