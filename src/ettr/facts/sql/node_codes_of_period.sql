-- One row is a code of a node, as in node_codes.sql, of the selected period alone.
-- keep: no
SELECT cluster, node, "check", code, count(*) AS events,
       min(time_us) AS first_us, max(time_us) AS last_us
FROM events
WHERE "check" IN ('xid', 'sxid') AND code IS NOT NULL AND node IS NOT NULL
  AND time_us >= coalesce(CAST($since_us AS BIGINT), time_us)
  AND time_us < coalesce(CAST($until_us AS BIGINT), time_us + 1)
GROUP BY cluster, node, "check", code
