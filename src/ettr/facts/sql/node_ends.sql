-- One row is a node that went down, and an attempt on it that ended with a node's failure at most 26
-- hours, the most that zones lie apart, before or after. Columns as in controller_ends.sql; the end
-- of the attempt is the line: it has one node that went down, of maybe many.
-- keep: no
SELECT h.cluster, h.node AS thing, h.attempt_id AS line, 'NODE_FAIL' AS code, 'NODE_FAIL' AS state,
       s.start_us AS time_us, h.end_us, s.file_id AS line_file, h.end_file
FROM node_fail_held h JOIN node_states s ON h.cluster = s.cluster AND h.node = s.node
WHERE s.state = 'DOWN'
  AND s.start_us - h.end_us <= 93600000000 AND h.end_us - s.start_us <= 93600000000
