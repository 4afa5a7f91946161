-- One row is a cell of the calendar ($cells_step_s long, from $cells_origin_s) in which node-time
-- begins (sign 1) or ends (sign -1), of large jobs and of others. Node-days before any edge follow
-- without cutting an attempt in pieces.
-- weight: nodes in use, by the part of the time in which they were; moment: weight times the second
-- since the origin.
-- keep: no
WITH began AS (
  SELECT coalesce(n_gpus > $above_gpus, FALSE) AS is_large, coalesce(node_s, 0.0) AS node_s,
         start_us // 1000000 - $cells_origin_s AS begin_s,
         CASE WHEN end_us IS NULL
              THEN start_us // 1000000 - $cells_origin_s + CAST(round(elapsed_s) AS BIGINT)
              ELSE end_us // 1000000 - $cells_origin_s END AS end_s
  FROM exposure WHERE start_us IS NOT NULL AND elapsed_s > 0),
spans AS (
  SELECT is_large, node_s, begin_s, CASE WHEN end_s > begin_s THEN end_s ELSE begin_s + 1 END AS until_s
  FROM began),
ends AS (
  SELECT 1 AS sign, is_large, begin_s AS at_s, node_s / (until_s - begin_s) AS weight FROM spans
  UNION ALL
  SELECT -1 AS sign, is_large, until_s AS at_s, node_s / (until_s - begin_s) AS weight FROM spans),
placed AS (
  SELECT sign, is_large, at_s, weight,
         CASE WHEN at_s <= 0 THEN 0 ELSE (at_s + $cells_step_s - 1) // $cells_step_s END AS cell
  FROM ends)
SELECT sign, is_large, cell, sum(weight) AS weight, sum(weight * at_s) AS moment
FROM placed GROUP BY sign, is_large, cell ORDER BY cell
