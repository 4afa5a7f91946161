-- What a failure rests on, whose it was, and where that stands in the logs.

-- One row is an event that a selected failure rests on, and where it stands in the logs.
-- keep: no
CREATE TABLE evidence_events AS
WITH explained AS (
  SELECT f.attempt_id, f.named_event, c.episode_id
  FROM failures f JOIN causes c ON f.attempt_id = c.attempt_id),
wanted AS (
  SELECT episode_id AS event_id FROM explained
  UNION
  SELECT named_event FROM explained WHERE named_event IS NOT NULL),
of_kinds AS (  -- by kind first: to compare the ids of all events takes ten times as long
  SELECT e.event_id, e.node, e.time_us, e."check", e.code, e.message, e.file_id, e.line
  FROM events e JOIN verdicts v
    ON e."check" = v."check" AND coalesce(e.code, '') = v.code_key AND e.severity = v.severity
  WHERE e."check" <> 'slurmctld'
  UNION ALL
  SELECT event_id, node, time_us, "check", code, message, file_id, line
  FROM events WHERE "check" = 'slurmctld')
SELECT k.event_id, k.node, k.time_us, k."check", k.code, k.message, k.file_id, k.line
FROM of_kinds k JOIN wanted a ON k.event_id = a.event_id;

-- One row is a state of a node that a selected failure rests on, and where it stands in the logs.
-- keep: no
CREATE TABLE evidence_states AS
WITH wanted AS (
  SELECT DISTINCT c.episode_id AS event_id
  FROM failures f JOIN causes c ON f.attempt_id = c.attempt_id WHERE c."check" = 'node-state'),
stated AS (
  SELECT 'node_state/' || cluster || '/' || node || '/' || state || '/' || CAST(start_us AS VARCHAR) AS event_id,
         node, start_us, state, reason, file_id, line
  FROM node_states)
SELECT s.event_id, s.node, s.start_us AS time_us, s.state, s.reason, s.file_id, s.line
FROM stated s JOIN wanted a ON s.event_id = a.event_id;

-- One row is a failure with its causes and its evidence as text, for expressions: goes with them.
CREATE TABLE failure_texts AS
WITH ranked AS (
  SELECT attempt_id, symptom, min(place) AS place FROM causes GROUP BY attempt_id, symptom),
symptoms AS (
  SELECT attempt_id, string_agg(symptom, ',' ORDER BY place) AS causes FROM ranked GROUP BY attempt_id),
seen AS (
  SELECT attempt_id, string_agg(replace(episode_id, ',', ';'), ',' ORDER BY place) AS evidence
  FROM causes GROUP BY attempt_id)
SELECT f.cluster, f.attempt_id, f.job_id, f.state, f.start_us, f.end_us, f.elapsed_s, f.n_nodes, f.n_gpus,
       f.node, f.symptom, f.domain, f.confidence, s.causes,
       CASE WHEN f.named_event IS NOT NULL AND e.evidence IS NOT NULL THEN e.evidence || ',' || f.named_event
            ELSE e.evidence END AS evidence
FROM failures f LEFT JOIN symptoms s ON f.attempt_id = s.attempt_id
LEFT JOIN seen e ON f.attempt_id = e.attempt_id;

-- One row is a selected failure, whose it was, and where the accounting says it.
-- keep: no
CREATE TABLE failure_owners AS
SELECT e.attempt_id, e.name, e."user", e.account, e."partition", e.qos, e.node_list, e.file_id, e.line
FROM all_endings e JOIN failures f ON e.attempt_id = f.attempt_id;
