-- One row is a selected failure, as in all_failures.sql, that blames an asked node, or that blames no
-- single one while its attempt held no other.
SELECT f.*
FROM all_failures f JOIN asked_ends a ON f.attempt_id = a.attempt_id
LEFT JOIN asked_places p ON f.cluster = p.cluster AND f.node = p.node
  AND coalesce(f.start_us, 0) >= p.from_us AND coalesce(f.start_us, 0) < p.to_us
LEFT JOIN asked_shares s ON f.attempt_id = s.attempt_id
WHERE p.node IS NOT NULL OR (f.node IS NULL AND coalesce(s.alone, FALSE))
