-- Days on which logs say anything of nodes, and failures on days on which they do not.

-- One row is a node on a UTC day with kernel messages or health checks of it: n_rows. A day of a
-- node's log is one row, whatever the log says: lines come in bursts.
CREATE TABLE error_days AS
WITH seen AS (
  SELECT cluster, node, day, errors AS n_rows FROM event_days WHERE errors > 0
  UNION ALL
  SELECT DISTINCT cluster, node, CAST(floor(day_us / 86400000000.0) AS BIGINT) AS day, 1 AS n_rows
  FROM log_days)
SELECT cluster, node, day, CAST(sum(n_rows) AS BIGINT) AS n_rows
FROM seen GROUP BY cluster, node, day;

-- One row is a node on a UTC day on which a state of it began: n_rows.
CREATE TABLE state_days AS
SELECT cluster, node, CAST(floor(start_us / 86400000000.0) AS BIGINT) AS day, count(*) AS n_rows
FROM node_states WHERE node IS NOT NULL
GROUP BY cluster, node, CAST(floor(start_us / 86400000000.0) AS BIGINT);

-- One row is a cluster on a UTC day with kernel messages or health checks: n_rows, as in error_days.
-- keep: no
CREATE TABLE cluster_error_days AS
SELECT cluster, day, CAST(sum(n_rows) AS BIGINT) AS n_rows FROM error_days GROUP BY cluster, day;

-- One row is a source of kernel messages and health checks, the controller's own log left out.
-- keep: no
CREATE TABLE error_sources AS
SELECT DISTINCT source FROM event_census WHERE "check" <> 'slurmctld'
UNION
SELECT DISTINCT source FROM log_days;

-- One row is a day of `error_days` of one of the nodes asked about.
-- keep: no
CREATE TABLE errors_of_nodes AS
SELECT d.node, d.day FROM error_days d JOIN asked_nodes a ON d.node = a.node
WHERE d.cluster = $asked_cluster;

-- One row is a cluster on a UTC day with rows of a kind of logs, errors or states: n_rows.
-- fleet_nodes: how many nodes of the fleet were heard in their time in service.
-- keep: no
CREATE TABLE heard_days AS
WITH heard AS (
  SELECT 'errors' AS kind, cluster, node, day, n_rows FROM error_days
  UNION ALL
  SELECT 'states' AS kind, cluster, node, day, n_rows FROM state_days)
SELECT h.kind, h.cluster, h.day, CAST(sum(h.n_rows) AS BIGINT) AS n_rows,
       sum(CASE WHEN h.day >= f.first_day AND h.day <= f.last_day THEN 1 ELSE 0 END) AS fleet_nodes
FROM heard h LEFT JOIN fleet_days f ON h.cluster = f.cluster AND h.node = f.node
GROUP BY h.kind, h.cluster, h.day;

-- One row is a node of the fleet with rows of a kind of logs, errors or states, in the period.
-- keep: no
CREATE TABLE heard_nodes AS
WITH heard AS (
  SELECT 'errors' AS kind, cluster, node, day FROM error_days
  UNION ALL
  SELECT 'states' AS kind, cluster, node, day FROM state_days)
SELECT DISTINCT h.kind, h.cluster, h.node
FROM heard h JOIN fleet_days f ON h.cluster = f.cluster AND h.node = f.node
WHERE h.day >= $first_day AND h.day <= $last_day;

-- One row is a group of ended attempts of the selection that their nodes may have ended and in whose
-- window no error was found: n_attempts of a cluster, of one UTC day.
-- node_failed: the scheduler says so; named: 1 where any node of theirs is named; silent: 1 where one
-- of these was not heard on that day or the day before; deaf: 1 where the logs of one are deaf to its GPUs.
-- keep: no
CREATE TABLE ends_without_errors AS
WITH faulted AS (SELECT DISTINCT attempt_id FROM all_observed WHERE fault),
unexplained AS (
  SELECT e.attempt_id, e.cluster, e.node_failed,
         CAST(floor(e.end_us / 86400000000.0) AS BIGINT) AS day
  FROM endings e LEFT JOIN faulted f ON e.attempt_id = f.attempt_id
  WHERE e.kind = 'hardware-candidate' AND f.attempt_id IS NULL),
held AS (
  SELECT attempt_id, cluster, node, CAST(floor(attempt_end_us / 86400000000.0) AS BIGINT) AS day
  FROM interrupted_held WHERE kind = 'hardware-candidate' AND node IS NOT NULL),
held_days AS (SELECT DISTINCT cluster, node, day FROM held),
silent_days AS (
  SELECT h.cluster, h.node, h.day
  FROM held_days h
  LEFT JOIN error_days d ON h.cluster = d.cluster AND h.node = d.node AND h.day = d.day
  LEFT JOIN error_days b ON h.cluster = b.cluster AND h.node = b.node AND h.day = b.day + 1
  WHERE d.day IS NULL AND b.day IS NULL),
placed AS (
  SELECT h.attempt_id, CASE WHEN s.day IS NOT NULL THEN 1 ELSE 0 END AS silent,
         CASE WHEN x.node IS NOT NULL THEN 1 ELSE 0 END AS deaf
  FROM held h
  LEFT JOIN silent_days s ON h.cluster = s.cluster AND h.node = s.node AND h.day = s.day
  LEFT JOIN deaf_nodes x ON h.cluster = x.cluster AND h.node = x.node),
places AS (  -- of most attempts every node was heard
  SELECT attempt_id, max(silent) AS silent, max(deaf) AS deaf
  FROM placed WHERE silent + deaf > 0 GROUP BY attempt_id),
named AS (
  SELECT u.attempt_id, u.cluster, u.day, u.node_failed,
         CASE WHEN u.attempt_id IN (SELECT attempt_id FROM held) THEN 1 ELSE 0 END AS named
  FROM unexplained u)
SELECT n.cluster, n.day, n.node_failed, n.named,
       coalesce(p.silent, 0) AS silent, coalesce(p.deaf, 0) AS deaf, count(*) AS n_attempts
FROM named n LEFT JOIN places p ON n.attempt_id = p.attempt_id
GROUP BY n.cluster, n.day, n.node_failed, n.named, coalesce(p.silent, 0), coalesce(p.deaf, 0);
