-- One row is an interrupted attempt that held an asked node. alone: it held no other.
SELECT h.attempt_id, count(p.node) = count(*) AS alone
FROM interrupted_held h LEFT JOIN asked_places p ON h.cluster = p.cluster AND h.node = p.node
  AND coalesce(h.start_us, 0) >= p.from_us AND coalesce(h.start_us, 0) < p.to_us
GROUP BY h.attempt_id HAVING count(p.node) > 0
