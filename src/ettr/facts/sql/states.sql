-- States of nodes: when they ended, who set them, what they say.

-- One row is a state of a node that no log ends, though it is over: the node took no work in it, and a
-- job began there long after, or the same log goes on with another state that cannot hold with it.
-- by_job_us: when the first job began that was not on its way (600 s), where one began more than a day
-- later: zones lie less far apart. by_state_us: when the other state began. Either may be null.
-- end_us: the first of the two.
CREATE TABLE known_ends AS
WITH unended AS (
  SELECT cluster, node, start_us, state, file_id FROM whole_node_states
  WHERE end_us IS NULL AND state IN (SELECT state FROM states_of_outages)),
next_states AS (
  SELECT u.cluster, u.node, u.start_us, u.state, min(o.start_us) AS by_state_us
  FROM unended u
  JOIN whole_node_states o ON u.cluster = o.cluster AND u.node = o.node AND u.file_id = o.file_id
  LEFT JOIN states_of_outages w ON o.state = w.state
  WHERE o.start_us > u.start_us
    -- slurmdbd ends the event of a node with the next
    AND (o.source = 'slurm-events' OR w.state IS NULL)
  GROUP BY u.cluster, u.node, u.start_us, u.state),
began AS (
  SELECT cluster, node, start_us FROM whole_allocations
  UNION ALL
  SELECT cluster, node_list AS node, start_us FROM whole_attempts WHERE n_nodes = 1),
later AS (
  SELECT u.cluster, u.node, u.start_us, u.state, b.start_us AS began_us,
         b.start_us // 1000000 - u.start_us // 1000000 AS later_s
  FROM unended u JOIN began b ON u.cluster = b.cluster AND u.node = b.node),
next_jobs AS (
  SELECT cluster, node, start_us, state, min(began_us) AS by_job_us FROM later WHERE later_s > 600
  GROUP BY cluster, node, start_us, state HAVING max(later_s) > 86400),
ended AS (
  SELECT u.cluster, u.node, u.start_us, u.state, j.by_job_us, s.by_state_us
  FROM unended u
  LEFT JOIN next_jobs j
    ON u.cluster = j.cluster AND u.node = j.node AND u.start_us = j.start_us AND u.state = j.state
  LEFT JOIN next_states s
    ON u.cluster = s.cluster AND u.node = s.node AND u.start_us = s.start_us AND u.state = s.state)
SELECT cluster, node, start_us, state, by_job_us, by_state_us,
       CASE WHEN by_job_us IS NULL OR by_state_us < by_job_us THEN by_state_us ELSE by_job_us END AS end_us
FROM ended WHERE by_job_us IS NOT NULL OR by_state_us IS NOT NULL;

-- One row is a state of a node in which it takes no work. end_us: null where no log ends it.
-- keep: no
CREATE TABLE out_states AS
SELECT cluster, node, state, reason, flags, start_us, end_us
FROM node_states WHERE state IN (SELECT state FROM states_of_outages);

-- One row is a state of a node in which it is no part of the fleet: powered down, or not there yet.
-- end_us: null where no log ends it.
-- keep: no
CREATE TABLE away_states AS
SELECT cluster, node, start_us, end_us
FROM node_states WHERE state IN ('POWERED_DOWN', 'POWERING_DOWN', 'FUTURE') AND node IS NOT NULL;

-- One row is a reason that states of a node give: n_states, and the start of the first and the last.
-- keep: no
CREATE TABLE reasons_by_node AS
SELECT reason, cluster, node, count(*) AS n_states, min(start_us) AS first_us, max(start_us) AS last_us
FROM node_states WHERE reason IS NOT NULL GROUP BY reason, cluster, node;

-- One row is a user under whom a log has states of a cluster's nodes, with a reason. n: how many states.
-- "user": null where no log says who. reason_key: '' without one.
-- keep: no
CREATE TABLE setters_of_states AS
SELECT cluster, "user", coalesce(reason, '') AS reason_key, count(*) AS n
FROM node_states WHERE state = 'DOWN' GROUP BY cluster, "user", coalesce(reason, '');
