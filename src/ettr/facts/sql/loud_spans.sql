-- One row is a node: seconds of the attempts that it may have ended in which it could be blamed.
-- keep: no
WITH ran AS (
  SELECT cluster, node, end_us // 1000000 - start_us // 1000000 AS ran_s,
         (end_us - $before_us) // 1000000 - start_us // 1000000 AS quiet_s
  FROM interrupted_held WHERE kind = 'hardware-candidate' AND elapsed_s > 0)
SELECT cluster, node,
       CAST(sum(ran_s - CASE WHEN quiet_s > 0 THEN quiet_s ELSE 0 END) AS DOUBLE) AS loud_s
FROM ran WHERE ran_s > 0 GROUP BY cluster, node
