-- One row is a state of a node that a selected failure rests on, and where it stands in the logs.
-- keep: no
WITH wanted AS (
  SELECT DISTINCT c.episode_id AS event_id
  FROM failures f JOIN causes c ON f.attempt_id = c.attempt_id WHERE c."check" = 'node-state'),
stated AS (
  SELECT 'node_state/' || cluster || '/' || node || '/' || state || '/' || CAST(start_us AS VARCHAR) AS event_id,
         node, start_us, state, reason, file_id, line
  FROM node_states)
SELECT s.event_id, s.node, s.start_us AS time_us, s.state, s.reason, s.file_id, s.line
FROM stated s JOIN wanted a ON s.event_id = a.event_id
