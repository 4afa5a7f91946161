-- One row is an observation in the window of an attempt: for few attempts, not for a fleet.
-- keep: no
SELECT DISTINCT w.attempt_id, o.event_id, w.episode_id, w.fault, w.down
FROM windows w JOIN observations o
  ON w.cluster = o.cluster AND w.node = o.node AND w."check" = o."check" AND w.code_key = o.code_key
 AND w.entity_key = o.entity_key AND w.stretch = o.time_us // $burst_us
 AND w.fault = o.fault AND w.down = o.down AND w.rank = o.rank
WHERE o.time_us <= w.end_us + $after_us AND o.until_us >= w.begins_us
