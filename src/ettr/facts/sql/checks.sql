-- Checks of nodes: what they reported, and when.

-- One row is a check on a day on which it reported: its first and last event of that day, how many.
-- keep: no
CREATE TABLE check_days AS
SELECT "check", day, min(first_us) AS first_us, max(last_us) AS last_us, sum(events) AS events
FROM event_census GROUP BY "check", day;

-- One row is an hour in which a check reported a fault of a node, by the taxonomy, or where that does not
-- know the check, critical in the check's own words. first_us, last_us: of these reports.
-- keep: no
CREATE TABLE check_reports AS
WITH reported AS (
  SELECT e.cluster, e.node, e."check", e.time_us
  FROM events e LEFT JOIN verdicts v
    ON e."check" = v."check" AND coalesce(e.code, '') = v.code_key AND e.severity = v.severity
  WHERE e.node IS NOT NULL AND e."check" NOT IN ('slurmctld', 'drain', 'ticket', 'serial')
    AND coalesce(v.fault, e.severity = 'critical'))
SELECT cluster, node, "check", min(time_us) AS first_us, max(time_us) AS last_us
FROM reported GROUP BY cluster, node, "check", time_us // 3600000000;

-- One row is a check on a node. passes: results that are ok; others: the moments of those that are not.
-- first_us, last_us: of all; last_pass_us: null without any. timed, timed_s: passes whose end is known,
-- and the seconds of these.
-- keep: no
CREATE TABLE check_results AS
WITH placed AS (
  SELECT cluster, node, "check", time_us, severity = 'ok' AS pass,
         CASE WHEN severity = 'ok' AND time_end_us >= time_us THEN time_end_us - time_us END AS took_us
  FROM events WHERE node IS NOT NULL)
SELECT cluster, node, "check", min(time_us) AS first_us, max(time_us) AS last_us,
       CAST(sum(CASE WHEN pass THEN 1 ELSE 0 END) AS BIGINT) AS passes,
       count(DISTINCT CASE WHEN NOT pass THEN time_us END) AS others,
       max(CASE WHEN pass THEN time_us END) AS last_pass_us,
       count(took_us) AS timed, CAST(sum(took_us) / 1000000.0 AS DOUBLE) AS timed_s
FROM placed GROUP BY cluster, node, "check";

-- One row is a thing that one check said of one node, or of one part of it (entity; null: the whole),
-- in the selected period. events: how often; first_us, last_us; file_id, line: where the last stands.
-- keep: no
CREATE TABLE node_checks AS
WITH mine AS (
  SELECT "check", code, severity, entity, time_us, file_id, line,
         row_number() OVER (PARTITION BY "check", code, severity, entity
                            ORDER BY time_us DESC, line DESC) AS place
  FROM events
  WHERE cluster = $asked_cluster AND node = $asked_node
    AND time_us >= coalesce(CAST($since_us AS BIGINT), time_us)
    AND time_us < coalesce(CAST($until_us AS BIGINT), time_us + 1))
SELECT "check", code, severity, entity, count(*) AS events,
       min(time_us) AS first_us, max(time_us) AS last_us,
       max(CASE WHEN place = 1 THEN file_id END) AS file_id,
       max(CASE WHEN place = 1 THEN line END) AS line
FROM mine GROUP BY "check", code, severity, entity;
