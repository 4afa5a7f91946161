-- One row is an allocation of a node during an outage of it. outage: the outage's place.
-- The outage is in all buckets in which such an allocation may have begun (`outage_buckets`); a
-- second is allowed for, since whole seconds are compared later.
-- keep: no
SELECT b.outage, a.start_us, a.end_us, a.elapsed_s
FROM allocations a
JOIN outage_buckets b
  ON a.cluster = b.cluster AND a.node = b.node AND a.start_us // $bucket_us = b.bucket
WHERE a.start_us < b.to_us + 1000000
  AND coalesce(a.end_us, a.start_us + CAST(a.elapsed_s * 1000000 AS BIGINT) + 1000000) > b.from_us
