-- Observations that can explain or place a failure.

-- One row is an observation that can explain or place a failure: an event, or the beginning of a state
-- of a node, whose reason was true then; a repair takes days.
-- code_key: its code, '' where the check has none. entity_key: the part of the node, '' for all of it.
-- until_us: when it was last observed. symptom: null where the reason names none. rank: the lower, the likelier the cause.
-- fault: explains a failure by itself. down: places one. sticky: repeats until somebody acts.
-- sympathetic: follows other codes.
-- keep: view
CREATE VIEW observations_all AS
WITH seen_events AS (  -- events on a named node that the taxonomy has something to say of
  SELECT e.event_id, e.cluster, e.node, e."check", v.code_key, coalesce(e.entity, '') AS entity_key,
         e.time_us, CASE WHEN e.time_end_us > e.time_us THEN e.time_end_us ELSE e.time_us END AS until_us,
         v.symptom, v.domain, v.rank, v.fault, v.down, v.sticky, v.sympathetic
  FROM events e JOIN verdicts v
    ON e."check" = v."check" AND coalesce(e.code, '') = v.code_key AND e.severity = v.severity
  WHERE e.node IS NOT NULL),
said AS (  -- with what the state right after it says, of one outage
  SELECT s.cluster, s.node, s.state, s.flags, s.start_us, s.end_us, r.planned, r.reason_class, r.symptom,
         r.domain, r.rank, r.fault,
         lead(s.start_us) OVER (PARTITION BY s.cluster, s.node ORDER BY s.start_us, s.state) AS later_us,
         lead(s.state) OVER (PARTITION BY s.cluster, s.node ORDER BY s.start_us, s.state) AS later_state,
         lead(r.symptom) OVER (PARTITION BY s.cluster, s.node ORDER BY s.start_us, s.state) AS later_symptom,
         lead(r.domain) OVER (PARTITION BY s.cluster, s.node ORDER BY s.start_us, s.state) AS later_domain,
         lead(r.rank) OVER (PARTITION BY s.cluster, s.node ORDER BY s.start_us, s.state) AS later_rank,
         lead(r.fault) OVER (PARTITION BY s.cluster, s.node ORDER BY s.start_us, s.state) AS later_fault,
         lead(r.planned) OVER (PARTITION BY s.cluster, s.node ORDER BY s.start_us, s.state) AS later_planned
  FROM node_states s JOIN reasons r ON coalesce(s.reason, '') = r.reason_key),
worded AS (  -- a node that went down silently has the cause that somebody then wrote
  SELECT cluster, node, state, flags, start_us, planned, reason_class, symptom, domain, rank, fault,
         later_symptom, later_domain, later_rank,
         coalesce(state = 'DOWN' AND symptom IS NULL AND NOT fault AND later_fault AND NOT later_planned
                  AND later_symptom IS NOT NULL AND later_us = end_us AND later_state IN ('DOWN', 'DRAIN'),
                  FALSE) AS is_named_later
  FROM said),
stated AS (
  SELECT 'node_state/' || cluster || '/' || node || '/' || state || '/' || CAST(start_us AS VARCHAR)
           AS event_id,
         cluster, node, start_us, reason_class,
         CASE WHEN is_named_later THEN later_symptom ELSE symptom END AS symptom,
         CASE WHEN is_named_later THEN later_domain ELSE domain END AS domain,
         CASE WHEN is_named_later THEN later_rank ELSE rank END AS rank,
         fault OR is_named_later AS fault, state = 'DOWN' AS down
  FROM worded
  -- a node that fell silent went down, whatever its reason says; one taken down for work did not
  WHERE NOT planned OR (state = 'DOWN' AND coalesce(flags, '') LIKE '%NOT_RESPONDING%'))
SELECT event_id, cluster, node, "check", code_key, entity_key, time_us, until_us,
       symptom, domain, rank, fault, down, sticky, sympathetic
FROM seen_events
UNION ALL
SELECT event_id, cluster, node, 'node-state', reason_class, '', start_us, start_us,
       symptom, domain, rank, fault, down, FALSE, FALSE
FROM stated WHERE fault OR down;

-- One row is an observation, as in observations_all: few enough to keep, and needed several times.
CREATE TABLE observations_kept AS
SELECT event_id, cluster, node, "check", code_key, entity_key, time_us, until_us,
       symptom, domain, rank, fault, down, sticky, sympathetic
FROM observations_all;
