-- One row is an observation that can explain or place a failure: an event, or the beginning of a state
-- of a node, whose reason was true then; a repair takes days.
-- code_key: its code, '' where the check has none. entity_key: the part of the node, '' for all of it.
-- symptom: null where the reason names none. rank: the lower, the likelier the cause.
-- fault: explains a failure by itself. down: places one. sticky: repeats until somebody acts.
-- sympathetic: follows other codes.
-- keep: view
WITH stated AS (
  SELECT 'node_state/' || s.cluster || '/' || s.node || '/' || s.state || '/' || CAST(s.start_us AS VARCHAR)
           AS event_id,
         s.cluster, s.node, s.start_us, r.reason_class, r.symptom, r.domain, r.rank, r.fault,
         s.state = 'DOWN' AS down
  FROM node_states s JOIN reasons r ON coalesce(s.reason, '') = r.reason_key
  -- a node that fell silent went down, whatever its reason says; one taken down for work did not
  WHERE NOT r.planned OR (s.state = 'DOWN' AND coalesce(s.flags, '') LIKE '%NOT_RESPONDING%'))
SELECT event_id, cluster, node, "check", code_key, entity_key, time_us, until_us,
       symptom, domain, rank, fault, down, sticky, sympathetic
FROM seen_events
UNION ALL
SELECT event_id, cluster, node, 'node-state', reason_class, '', start_us, start_us,
       symptom, domain, rank, fault, down, FALSE, FALSE
FROM stated WHERE fault OR down
