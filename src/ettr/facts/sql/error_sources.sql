-- One row is a source of kernel messages and health checks, the controller's own log left out.
-- keep: no
SELECT DISTINCT source FROM event_census WHERE "check" <> 'slurmctld'
UNION
SELECT DISTINCT source FROM log_days
