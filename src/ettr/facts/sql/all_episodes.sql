-- One row is an episode of a fault: observations of one thing without a silence longer than the gap.
-- event_id: its first event. code: null where the check has none. entity: null where it is the node.
SELECT cluster, node, "check", code_key, entity_key, episode,
       max(symptom) AS symptom, max(domain) AS domain, max(rank) AS rank,
       max(CASE WHEN fault THEN 1 ELSE 0 END) = 1 AS fault,
       max(CASE WHEN down THEN 1 ELSE 0 END) = 1 AS down,
       max(CASE WHEN sticky THEN 1 ELSE 0 END) = 1 AS sticky,
       max(CASE WHEN sympathetic THEN 1 ELSE 0 END) = 1 AS sympathetic,
       min(first_us) AS first_us, max(last_us) AS last_us, CAST(sum(n_events) AS BIGINT) AS n_events,
       episode_id AS event_id, nullif(code_key, '') AS code, nullif(entity_key, '') AS entity
FROM segments
GROUP BY cluster, node, "check", code_key, entity_key, episode, episode_id
HAVING max(CASE WHEN fault THEN 1 ELSE 0 END) = 1
