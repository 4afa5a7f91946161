-- One row is what a job of all logs held of a node of an asked name, in any cluster.
-- end_us: null where it goes on.
-- keep: no
SELECT node, start_us, end_us FROM allocations WHERE node IN (SELECT node FROM asked_nodes)
