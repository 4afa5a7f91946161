-- One row is an attempt of which a node ran for another time than the attempt: a pod was replaced, or a
-- worker came later. Its node-time is what its allocations say, never its time times its nodes.
-- Batch schedulers give each node the time of the attempt: what they say is not looked at.
SELECT DISTINCT a.attempt_id
FROM allocations a JOIN attempts t ON a.attempt_id = t.attempt_id
WHERE a.source NOT IN ('slurm-sacct', 'slurm-sacct-json', 'slurm-jobs', 'pbs', 'lsf', 'flux', 'simulation')
  AND (a.elapsed_s <> t.elapsed_s OR a.start_us <> t.start_us)
