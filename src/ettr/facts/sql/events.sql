-- Events counted by kind, by day and by node.

-- One row is a kind of events on one UTC day, counted in the events; columns as in event_census.
CREATE TABLE event_census_counted AS
SELECT source, "check", code, severity, CAST(floor(time_us / 86400000000.0) AS BIGINT) AS day,
       count(*) AS events, min(time_us) AS first_us, max(time_us) AS last_us,
       min(time_end_us) AS first_end_us, max(time_end_us) AS last_end_us
FROM events
GROUP BY source, "check", code, severity, CAST(floor(time_us / 86400000000.0) AS BIGINT);

-- One row is a kind of events on one UTC day, from what a store keeps of its parts.
CREATE TABLE event_census_summed AS
SELECT source, "check", code, severity, day, CAST(sum(events) AS BIGINT) AS events,
       min(first_us) AS first_us, max(last_us) AS last_us,
       min(first_end_us) AS first_end_us, max(last_end_us) AS last_end_us
FROM event_census_parts GROUP BY source, "check", code, severity, day;

-- One row is a node on a UTC day with events of it, counted in the events; columns as in event_days.
CREATE TABLE event_days_counted AS
SELECT cluster, node, CAST(floor(time_us / 86400000000.0) AS BIGINT) AS day,
       count(CASE WHEN "check" <> 'slurmctld' THEN 1 END) AS errors
FROM events WHERE node IS NOT NULL
GROUP BY cluster, node, CAST(floor(time_us / 86400000000.0) AS BIGINT);

-- One row is a node on a UTC day with events of it, from what a store keeps of its parts.
CREATE TABLE event_days_summed AS
SELECT cluster, node, day, CAST(sum(errors) AS BIGINT) AS errors
FROM event_days_parts GROUP BY cluster, node, day;

-- One row is a kind of events of a node, counted in the events; columns as in event_node_kinds.
CREATE TABLE event_node_kinds_counted AS
SELECT cluster, node, "check", code, severity, count(*) AS events,
       min(time_us) AS first_us, max(time_us) AS last_us
FROM events WHERE node IS NOT NULL GROUP BY cluster, node, "check", code, severity;

-- One row is a kind of events of a node, from what a store keeps of its parts.
CREATE TABLE event_node_kinds_summed AS
SELECT cluster, node, "check", code, severity, CAST(sum(events) AS BIGINT) AS events,
       min(first_us) AS first_us, max(last_us) AS last_us
FROM event_node_kinds_parts GROUP BY cluster, node, "check", code, severity;

-- One row is a kind of events on any day, source apart. events: how many; none of them need name a node.
-- keep: no
CREATE TABLE event_kinds AS
SELECT "check", code, severity, CAST(sum(events) AS BIGINT) AS events
FROM event_census GROUP BY "check", code, severity;

-- One row is a node that events name, and the first UTC day of one, counted from 1970.
-- keep: no
CREATE TABLE event_nodes AS
SELECT cluster, node, min(day) AS first_day FROM event_days GROUP BY cluster, node;

-- One row is a code of a GPU or an NVSwitch in the kernel log of a node: events, first_us, last_us.
-- keep: no
CREATE TABLE node_codes AS
SELECT cluster, node, "check", code, CAST(sum(events) AS BIGINT) AS events,
       min(first_us) AS first_us, max(last_us) AS last_us
FROM event_node_kinds
WHERE "check" IN ('xid', 'sxid') AND code IS NOT NULL GROUP BY cluster, node, "check", code;

-- One row is a code of a node, as in node_codes, of the selected period alone.
-- keep: no
CREATE TABLE node_codes_of_period AS
SELECT cluster, node, "check", code, count(*) AS events,
       min(time_us) AS first_us, max(time_us) AS last_us
FROM events
WHERE "check" IN ('xid', 'sxid') AND code IS NOT NULL AND node IS NOT NULL
  AND time_us >= coalesce(CAST($since_us AS BIGINT), time_us)
  AND time_us < coalesce(CAST($until_us AS BIGINT), time_us + 1)
GROUP BY cluster, node, "check", code;

-- One row is a GPU of a node (entity; null: not named) that reported an XID in the selected period.
-- events: how often; first_us, last_us: when.
-- keep: no
CREATE TABLE xid_devices AS
SELECT cluster, node, code, entity, count(*) AS events,
       min(time_us) AS first_us, max(time_us) AS last_us
FROM events
WHERE "check" = 'xid' AND node IS NOT NULL AND code IS NOT NULL
  AND time_us >= coalesce(CAST($since_us AS BIGINT), time_us)
  AND time_us < coalesce(CAST($until_us AS BIGINT), time_us + 1)
GROUP BY cluster, node, code, entity;
