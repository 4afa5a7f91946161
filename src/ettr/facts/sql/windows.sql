-- What was observed near the end of attempts.

-- One row is an ended attempt, a node of it and a segment that overlaps its window there, which lasts
-- from $before_us before the end to $after_us after it.
-- begins_us: when the window begins, never before the attempt did.
-- Joined by node and hour of the end, so that a segment meets only the attempts that ended near it.
CREATE TABLE windows AS
WITH reach AS (
  SELECT cluster, node, "check", code_key, entity_key, stretch, symptom, domain, rank, fault, down,
         first_us, last_us, n_events, episode_id,
         unnest(range((first_us - $after_us) // $bucket_us,
                      (last_us + $before_us) // $bucket_us + 1)) AS bucket
  FROM explanatory),
ended AS (
  SELECT cluster, node, attempt_id, end_us, end_us // $bucket_us AS bucket,
         CASE WHEN start_us > end_us - $before_us THEN start_us ELSE end_us - $before_us END AS begins_us
  FROM allocations WHERE end_us IS NOT NULL)
SELECT e.attempt_id, e.end_us, e.begins_us, r.cluster, r.node, r."check", r.code_key, r.entity_key,
       r.stretch, r.symptom, r.domain, r.rank, r.fault, r.down, r.first_us, r.last_us, r.n_events,
       r.episode_id
FROM ended e JOIN reach r ON e.cluster = r.cluster AND e.node = r.node AND e.bucket = r.bucket
WHERE r.first_us <= e.end_us + $after_us AND r.last_us >= e.begins_us;

-- One row is an observation in the window of an attempt: for few attempts, not for a fleet.
-- keep: no
CREATE TABLE window_events AS
SELECT DISTINCT w.attempt_id, o.event_id, w.episode_id, w.fault, w.down
FROM windows w JOIN observations o
  ON w.cluster = o.cluster AND w.node = o.node AND w."check" = o."check" AND w.code_key = o.code_key
 AND w.entity_key = o.entity_key AND w.stretch = o.time_us // $burst_us
 AND w.fault = o.fault AND w.down = o.down AND w.rank = o.rank
WHERE o.time_us <= w.end_us + $after_us AND o.until_us >= w.begins_us;

-- One row is an ended attempt, a node of it and an episode that was observed there in the window. Every
-- end state counts: the completed attempts measure how often the window errs.
-- first_us: when it was first observed in the window; when the window began, if it was on before.
-- A segment of one observation is that observation. Where a longer one begins in the window, or ends in
-- it and before the attempt does, an observation at that end is in the window too. Of what is left each
-- observation is looked at: it may have been before and after the window alone, or only after the end.
CREATE TABLE all_observed AS
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
GROUP BY attempt_id, node, episode_id, "check", code_key, symptom, domain, rank, fault, down;
