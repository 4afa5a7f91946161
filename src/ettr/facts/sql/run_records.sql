-- One row is a line of progress of a job of a listed run, from the lowest rank that records steps;
-- jobs whose clock was another than that of the accounting are left out. A step, save or restore
-- without its number says nothing about where the run is. A wait of the
-- training for data has the name that ettr.progress.split knows.
-- keep: no
WITH jobs AS (SELECT DISTINCT cluster, job_id FROM run_members),
mine AS (
  SELECT p.* FROM run_progress p
  JOIN jobs j ON p.cluster = j.cluster AND p.job_id = j.job_id
  LEFT JOIN shifted_jobs o ON p.cluster = o.cluster AND p.job_id = o.job_id
  WHERE o.job_id IS NULL
    AND (p.step IS NOT NULL OR p.event NOT IN ('step', 'save', 'restore'))),
ranks AS (
  SELECT cluster, job_id, min(rank) AS rank FROM mine WHERE event = 'step'
  GROUP BY cluster, job_id)
SELECT m.cluster, m.job_id, m.time_us,
       CASE WHEN m.event <> 'stall' THEN m.event
            WHEN m.detail IS NULL OR m.detail NOT LIKE '%"cause":"data"%' THEN m.event
            WHEN m.detail LIKE '%"part":"evaluation"%' THEN m.event
            WHEN m.detail LIKE '%"bound":"upper"%' THEN 'stall data open'
            ELSE 'stall data' END AS event,
       m.step, m.duration_s, m.file_id, m.line
FROM mine m
JOIN ranks r ON m.cluster = r.cluster AND m.job_id = r.job_id AND m.rank = r.rank
ORDER BY m.cluster, m.job_id, m.file_id, m.line
