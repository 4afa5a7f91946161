-- One row is a node: whole seconds from the start to the end of all that ran and ended there.
-- keep: no
WITH ran AS (
  SELECT cluster, node, end_us // 1000000 - start_us // 1000000 AS ran_s
  FROM allocations WHERE elapsed_s > 0)
SELECT cluster, node, CAST(sum(ran_s) AS DOUBLE) AS span_s FROM ran WHERE ran_s > 0 GROUP BY cluster, node
