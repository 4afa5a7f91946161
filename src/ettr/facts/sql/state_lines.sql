-- One row is a line of the controller's log that says something of a node's state, in order of time.
-- keep: no
SELECT cluster, node, time_us, code, message, source, file_id, line
FROM whole_events
WHERE "check" = 'slurmctld' AND node IS NOT NULL
  AND code IN ('DRAIN', 'EPILOG_ERROR', 'NODE_FAILING', 'NODE_DOWN', 'STATE_MAINT', 'CONFIG_MISMATCH',
               'NODE_RESUMED', 'REASON')
ORDER BY time_us, file_id, line
