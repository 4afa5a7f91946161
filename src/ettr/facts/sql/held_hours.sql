-- One row: held_s, the node-seconds of all allocations; null where none has a runtime.
-- keep: no
SELECT sum(elapsed_s) AS held_s FROM allocations
