-- One row is an hour in which a check reported a fault of a node, by the taxonomy, or where that does not
-- know the check, critical in the check's own words. first_us, last_us: of these reports.
-- keep: no
WITH reported AS (
  SELECT e.cluster, e.node, e."check", e.time_us
  FROM events e LEFT JOIN verdicts v
    ON e."check" = v."check" AND coalesce(e.code, '') = v.code_key AND e.severity = v.severity
  WHERE e.node IS NOT NULL AND e."check" NOT IN ('slurmctld', 'drain', 'ticket', 'serial')
    AND coalesce(v.fault, e.severity = 'critical'))
SELECT cluster, node, "check", min(time_us) AS first_us, max(time_us) AS last_us
FROM reported GROUP BY cluster, node, "check", time_us // 3600000000
