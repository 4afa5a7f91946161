-- One row is a node of a test of bus bandwidth. test: which; message: the bandwidth, size and nodes.
-- keep: no
SELECT cluster, node, entity AS test, message
FROM events
WHERE "check" = 'nccl-tests' AND code = 'busbw' AND node IS NOT NULL AND entity IS NOT NULL
