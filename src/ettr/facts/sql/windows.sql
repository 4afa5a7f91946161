-- One row is an ended attempt, a node of it and a segment that overlaps its window there, which lasts
-- from $before_us before the end to $after_us after it.
-- begins_us: when the window begins, never before the attempt did.
-- Joined by node and hour of the end, so that a segment meets only the attempts that ended near it.
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
WHERE r.first_us <= e.end_us + $after_us AND r.last_us >= e.begins_us
