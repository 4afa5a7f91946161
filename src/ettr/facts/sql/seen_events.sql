-- One row is an event on a named node that the taxonomy has something to say of.
-- until_us: when it was last observed. The rest as in observations_all.sql.
-- keep: view
SELECT e.event_id, e.cluster, e.node, e."check", v.code_key, coalesce(e.entity, '') AS entity_key,
       e.time_us, CASE WHEN e.time_end_us > e.time_us THEN e.time_end_us ELSE e.time_us END AS until_us,
       v.symptom, v.domain, v.rank, v.fault, v.down, v.sticky, v.sympathetic
FROM events e JOIN verdicts v
  ON e."check" = v."check" AND coalesce(e.code, '') = v.code_key AND e.severity = v.severity
WHERE e.node IS NOT NULL
