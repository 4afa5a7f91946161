-- Episodes: observations of one thing without a silence longer than a gap.

-- One row is a thing (node, entity, check and code) and a stretch of time in which it was observed.
-- stretch: pieces of time of the burst gap's length ($burst_us): two observations of one thing in one
-- stretch belong to one episode. Two steps with the outcome of one: eight hundred thousand lines of one
-- broken GPU cost one hash table, not one sort.
-- episode: number of the episode among those of its thing; a new one begins after a silence longer than
-- the gap ($sticky_us of a sticky code). episode_id: the first event of that episode.
CREATE TABLE segments AS
WITH stretched AS (
  SELECT cluster, node, "check", code_key, entity_key, time_us // $burst_us AS stretch,
         symptom, domain, rank, fault, down, sticky, sympathetic, time_us, until_us,
         lpad(CAST(time_us AS VARCHAR), 17, '0') || event_id AS time_key
  FROM observations),
folded AS (
  SELECT cluster, node, "check", code_key, entity_key, stretch,
         symptom, domain, rank, fault, down, sticky, sympathetic,
         min(time_us) AS first_us, max(until_us) AS last_us, count(*) AS n_events,
         min(time_key) AS first_key
  FROM stretched
  GROUP BY cluster, node, "check", code_key, entity_key, stretch,
           symptom, domain, rank, fault, down, sticky, sympathetic),
covered AS (
  SELECT cluster, node, "check", code_key, entity_key, stretch,
         symptom, domain, rank, fault, down, sticky, sympathetic,
         first_us, last_us, n_events, first_key,
         max(last_us) OVER (
           PARTITION BY cluster, node, "check", code_key, entity_key ORDER BY first_us, first_key
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS covered_us
  FROM folded),
numbered AS (
  SELECT cluster, node, "check", code_key, entity_key, stretch,
         symptom, domain, rank, fault, down, sticky, sympathetic,
         first_us, last_us, n_events, first_key,
         CAST(sum(CASE WHEN covered_us IS NULL THEN 1
                       WHEN first_us - covered_us > CASE WHEN sticky THEN $sticky_us ELSE $burst_us END
                       THEN 1 ELSE 0 END) OVER (
           PARTITION BY cluster, node, "check", code_key, entity_key ORDER BY first_us, first_key
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) AS episode
  FROM covered)
SELECT cluster, node, "check", code_key, entity_key, stretch,
       symptom, domain, rank, fault, down, sticky, sympathetic,
       first_us, last_us, n_events, episode,
       substr(min(first_key) OVER (
         PARTITION BY cluster, node, "check", code_key, entity_key, episode), 18) AS episode_id
FROM numbered;

-- One row is an episode of a fault: observations of one thing without a silence longer than the gap.
-- event_id: its first event. code: null where the check has none. entity: null where it is the node.
CREATE TABLE all_episodes AS
SELECT cluster, node, "check", code_key, entity_key, episode,
       max(symptom) AS symptom, max(domain) AS domain, max(rank) AS rank,
       max(CASE WHEN fault THEN 1 ELSE 0 END) = 1 AS fault,
       max(CASE WHEN down THEN 1 ELSE 0 END) = 1 AS down,
       max(CASE WHEN sticky THEN 1 ELSE 0 END) = 1 AS sticky,
       max(CASE WHEN sympathetic THEN 1 ELSE 0 END) = 1 AS sympathetic,
       min(first_us) AS first_us, max(last_us) AS last_us, CAST(sum(n_events) AS BIGINT) AS n_events,
       episode_id AS event_id, nullif(code_key, '') AS code, nullif(entity_key, '') AS entity
FROM segments
GROUP BY cluster, node, "check", code_key, entity_key, episode, episode_id
HAVING max(CASE WHEN fault THEN 1 ELSE 0 END) = 1;

-- One row is a segment that may explain or place a failure, as in segments.
-- A sympathetic code that counts at all (XID 45) counts only where no other code of its check was seen
-- on the node within a burst's gap. It meets those that began in the hours around its own.
CREATE TABLE explanatory AS
WITH lone AS (
  SELECT cluster, node, "check", episode_id, first_us - $burst_us AS from_us, last_us + $burst_us AS to_us
  FROM segments WHERE sympathetic AND fault),
hours AS (
  SELECT cluster, node, "check", episode_id, from_us, to_us, from_us // 3600000000 - 1 AS hour FROM lone
  UNION ALL
  SELECT cluster, node, "check", episode_id, from_us, to_us, from_us // 3600000000 FROM lone
  UNION ALL
  SELECT cluster, node, "check", episode_id, from_us, to_us, to_us // 3600000000 FROM lone),
accompanied AS (
  SELECT DISTINCT h.episode_id
  FROM hours h JOIN segments s
    ON h.cluster = s.cluster AND h.node = s.node AND h."check" = s."check"
   AND h.hour = s.first_us // 3600000000
  WHERE NOT s.sympathetic AND s.first_us <= h.to_us AND s.last_us >= h.from_us)
SELECT s.cluster, s.node, s."check", s.code_key, s.entity_key, s.stretch,
       s.symptom, s.domain, s.rank, s.fault, s.down, s.first_us, s.last_us, s.n_events, s.episode_id
FROM segments s LEFT JOIN accompanied a ON s.episode_id = a.episode_id
WHERE (s.fault OR s.down) AND a.episode_id IS NULL;
