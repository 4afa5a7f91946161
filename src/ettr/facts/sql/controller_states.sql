-- One row is a state of a node, as in node_states, that only the controller's log has: one that meets a
-- state of the same node from another log is that one again. Clocks may differ by a minute.
-- end_us: where no line gives it, when the next job started on the node; null where none did.
WITH returned AS (
  SELECT b.place, min(a.start_us) AS back_us
  FROM controller_begun b JOIN whole_allocations a ON b.cluster = a.cluster AND b.node = a.node
  WHERE b.end_us IS NULL AND a.start_us > b.start_us + 60000000
  GROUP BY b.place),
met AS (
  SELECT DISTINCT b.place
  FROM controller_begun b JOIN ended_states s ON b.cluster = s.cluster AND b.node = s.node
  WHERE (s.end_us IS NULL OR b.start_us <= s.end_us + 60000000)
    AND (b.end_us IS NULL OR b.end_us >= s.start_us - 60000000))
SELECT b.cluster, b.node, b.state, b.flags, b.reason, CAST(NULL AS VARCHAR) AS "user", b.start_us,
       coalesce(b.end_us, r.back_us) AS end_us, b.source, b.file_id, b.line
FROM controller_begun b
LEFT JOIN returned r ON b.place = r.place
LEFT JOIN met m ON b.place = m.place
WHERE m.place IS NULL
