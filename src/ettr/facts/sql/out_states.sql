-- One row is a state of a node in which it takes no work. end_us: null where no log ends it.
-- keep: no
SELECT cluster, node, state, reason, flags, start_us, end_us
FROM node_states WHERE state IN (SELECT state FROM states_of_outages)
