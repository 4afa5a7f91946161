-- One row is a fault of a node that a log records as such. code: its kind, null where none is said.
-- time_end_us: when it was over, null where that is not said. node: null where none is named.
-- keep: no
SELECT cluster, node, code, source, time_us, time_end_us
FROM events WHERE "check" IN ('infinitehbd', 'lanl', 'fault')
