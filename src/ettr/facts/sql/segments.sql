-- One row is a thing (node, entity, check and code) and a stretch of time in which it was observed.
-- stretch: pieces of time of the burst gap's length ($burst_us): two observations of one thing in one
-- stretch belong to one episode. Two steps with the outcome of one: eight hundred thousand lines of one
-- broken GPU cost one hash table, not one sort.
-- episode: number of the episode among those of its thing; a new one begins after a silence longer than
-- the gap ($sticky_us of a sticky code). episode_id: the first event of that episode.
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
FROM numbered
