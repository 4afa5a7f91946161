-- One row is a preempted attempt that ended on a node at most $preempted_within_s seconds before a
-- restart (restarts) began there, and that restart; $clock_slack_s after it counts too.
WITH starts AS (
  SELECT DISTINCT a.cluster, a.node, a.attempt_id AS restart_id, a.start_us // 1000000 AS start_s
  FROM allocations a JOIN restarts r ON a.attempt_id = r.attempt_id),
-- what ended in time lies in the bucket of the start or the one before, by the slack in the one after
near AS (
  SELECT cluster, node, restart_id, start_s, start_s // $preempted_within_s - 1 AS bucket FROM starts
  UNION ALL
  SELECT cluster, node, restart_id, start_s, start_s // $preempted_within_s AS bucket FROM starts
  UNION ALL
  SELECT cluster, node, restart_id, start_s, start_s // $preempted_within_s + 1 AS bucket FROM starts),
ends AS (
  SELECT h.cluster, h.node, h.attempt_id, h.end_us // 1000000 AS end_s,
         h.end_us // 1000000 // $preempted_within_s AS bucket
  FROM interrupted_held h JOIN all_endings e ON h.attempt_id = e.attempt_id
  WHERE e.state = 'PREEMPTED' AND h.end_us IS NOT NULL)
SELECT DISTINCT e.attempt_id, n.restart_id
FROM ends e JOIN near n ON e.cluster = n.cluster AND e.node = n.node AND e.bucket = n.bucket
WHERE e.end_s <= n.start_s + $clock_slack_s AND n.start_s - e.end_s <= $preempted_within_s
