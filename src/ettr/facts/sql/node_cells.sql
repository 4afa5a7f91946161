-- One row is a node in a cell of time in which chosen attempts ran on it: held_s. Starts count in
-- whole seconds. cell: its place; from_s, to_s: its edges, in seconds from 1970.
-- keep: no
WITH timed AS (
  SELECT cluster, node, start_us // 1000000 AS start_s, start_us // 1000000 + elapsed_s AS end_s
  FROM exposure_nodes WHERE node IS NOT NULL AND start_us IS NOT NULL AND elapsed_s IS NOT NULL),
inside AS (
  SELECT t.cluster, t.node, c.cell,
         CASE WHEN t.end_s < c.to_s THEN t.end_s ELSE c.to_s END
         - CASE WHEN t.start_s > c.from_s THEN t.start_s ELSE c.from_s END AS held_s
  FROM timed t JOIN time_cells c ON t.start_s < c.to_s AND t.end_s > c.from_s)
SELECT cluster, node, cell, sum(held_s) AS held_s
FROM inside WHERE held_s > 0 GROUP BY cluster, node, cell
