-- One row is a segment that may explain or place a failure, as in segments.sql.
-- A sympathetic code that counts at all (XID 45) counts only where no other code of its check was seen
-- on the node within a burst's gap. It meets those that began in the hours around its own.
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
WHERE (s.fault OR s.down) AND a.episode_id IS NULL
