-- One row is a GPU of a node (entity; null: not named) that reported an XID in the selected period.
-- events: how often; first_us, last_us: when.
-- keep: no
SELECT cluster, node, code, entity, count(*) AS events,
       min(time_us) AS first_us, max(time_us) AS last_us
FROM events
WHERE "check" = 'xid' AND node IS NOT NULL AND code IS NOT NULL
  AND time_us >= coalesce(CAST($since_us AS BIGINT), time_us)
  AND time_us < coalesce(CAST($until_us AS BIGINT), time_us + 1)
GROUP BY cluster, node, code, entity
