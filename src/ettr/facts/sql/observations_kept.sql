-- One row is an observation, as in observations_all.sql: few enough to keep, and needed several times.
SELECT event_id, cluster, node, "check", code_key, entity_key, time_us, until_us,
       symptom, domain, rank, fault, down, sticky, sympathetic
FROM observations_all
