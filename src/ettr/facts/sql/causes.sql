-- One row is a hardware-candidate and an episode of a fault that may explain its end.
-- place: from 0, the likeliest first: on the node that the scheduler names, then by rank, then by time.
-- first_us: when it was first observed in the window. episode_id: its first event.
-- code_key: '' where the check has none.
SELECT o.attempt_id, o.node, o.episode_id, o."check", o.code_key, o.symptom,
       o.domain, o.first_us,
       row_number() OVER (PARTITION BY o.attempt_id ORDER BY
         CASE WHEN o.node <> c.named_node THEN 1 ELSE 0 END, o.rank, o.first_us, o.node, o.episode_id) - 1
         AS place
FROM all_observed o JOIN candidates c ON o.attempt_id = c.attempt_id
WHERE o.fault
