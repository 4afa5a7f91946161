-- One row is an event that a selected failure rests on, and where it stands in the logs.
-- keep: no
WITH explained AS (
  SELECT f.attempt_id, f.named_event, c.episode_id
  FROM failures f JOIN causes c ON f.attempt_id = c.attempt_id),
wanted AS (
  SELECT episode_id AS event_id FROM explained
  UNION
  SELECT named_event FROM explained WHERE named_event IS NOT NULL)
SELECT e.event_id, e.node, e.time_us, e."check", e.code, e.message, e.file_id, e.line
FROM events e JOIN wanted a ON e.event_id = a.event_id
