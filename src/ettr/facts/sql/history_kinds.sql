-- One row is a kind of events that may concern the asked job, as in event_kinds.sql.
SELECT "check", code, severity, count(*) AS events FROM history_events GROUP BY "check", code, severity
