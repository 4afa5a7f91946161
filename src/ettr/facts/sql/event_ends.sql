-- One row is a node that went out of service, and an hour with events of it (errors, warnings, checks that
-- failed) at most 26 hours before or after, where at most five have any: a node that logs something every
-- hour fits any shift. Columns as in controller_ends.sql; going out is the line: what of its node was
-- logged lies near it. time_us: the first event of the hour.
-- keep: no
WITH noted AS (
  SELECT cluster, node, min(time_us) AS time_us, min(file_id) AS line_file
  FROM events
  WHERE "check" <> 'slurmctld' AND severity <> 'ok' AND node IS NOT NULL
  GROUP BY cluster, node, time_us // 3600000000),
gone AS (
  SELECT cluster, node, start_us, min(file_id) AS end_file FROM node_states
  WHERE state IN ('DOWN', 'DRAIN', 'FAIL') AND source <> 'slurm-inventory' AND node IS NOT NULL
  GROUP BY cluster, node, start_us),
near AS (
  SELECT o.cluster, o.node, o.start_us, h.time_us, h.line_file, o.end_file,
         count(*) OVER (PARTITION BY o.cluster, o.node, o.start_us) AS hours
  FROM gone o JOIN noted h ON o.cluster = h.cluster AND o.node = h.node
  WHERE h.time_us - o.start_us <= 93600000000 AND o.start_us - h.time_us <= 93600000000)
SELECT cluster, node AS thing, node || ' ' || CAST(start_us AS VARCHAR) AS line,
       'NODE_FAIL' AS code, 'NODE_FAIL' AS state, time_us, start_us AS end_us, line_file, end_file
FROM near WHERE hours <= 5
