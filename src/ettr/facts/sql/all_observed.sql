-- One row is an ended attempt, a node of it and an episode that was observed there in the window. Every
-- end state counts: the completed attempts measure how often the window errs.
-- first_us: when it was first observed in the window; when the window began, if it was on before.
-- A segment of one observation is that observation. Where a longer one begins in the window, or ends in
-- it and before the attempt does, an observation at that end is in the window too. Of what is left each
-- observation is looked at: it may have been before and after the window alone, or only after the end.
WITH judged AS (
  SELECT attempt_id, cluster, node, "check", code_key, entity_key, stretch, episode_id,
         symptom, domain, rank, fault, down, first_us, end_us, begins_us,
         n_events = 1 OR first_us >= begins_us OR last_us <= end_us AS decided
  FROM windows),
undecided AS (
  SELECT attempt_id, cluster, node, "check", code_key, entity_key, stretch, episode_id,
         symptom, domain, rank, fault, down, end_us, begins_us
  FROM judged WHERE NOT decided),
found AS (
  SELECT attempt_id, node, episode_id, "check", code_key, symptom, domain, rank, fault, down,
         CASE WHEN first_us < begins_us THEN begins_us ELSE first_us END AS first_us, end_us
  FROM judged WHERE decided
  UNION ALL
  SELECT w.attempt_id, w.node, w.episode_id, w."check", w.code_key, w.symptom, w.domain, w.rank,
         w.fault, w.down, CASE WHEN o.time_us < w.begins_us THEN w.begins_us ELSE o.time_us END, w.end_us
  FROM undecided w JOIN observations o
    ON w.cluster = o.cluster AND w.node = o.node AND w."check" = o."check" AND w.code_key = o.code_key
   AND w.entity_key = o.entity_key AND w.stretch = o.time_us // $burst_us
   AND w.fault = o.fault AND w.down = o.down AND w.rank = o.rank
  WHERE o.time_us <= w.end_us + $after_us AND o.until_us >= w.begins_us)
SELECT attempt_id, node, episode_id, "check", code_key, symptom, domain, rank, fault, down,
       min(first_us) AS first_us, max(end_us) AS end_us
FROM found
GROUP BY attempt_id, node, episode_id, "check", code_key, symptom, domain, rank, fault, down
