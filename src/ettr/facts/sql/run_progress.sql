-- Progress of the listed runs.

-- One row is a line of progress of a job of a listed run, from the lowest rank that records steps;
-- jobs whose clock was another than that of the accounting are left out. A step, save or restore
-- without its number says nothing about where the run is. A wait of the
-- training for data has the name that ettr.progress.split knows.
-- keep: no
CREATE TABLE run_records AS
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
ORDER BY m.cluster, m.job_id, m.file_id, m.line;

-- One row is a job of a listed run whose progress times its waits for data, in seconds: of several
-- ranks the slowest decides, step by step. wait_s: of the training; sure_s: of that what is no upper
-- bound; begin_s: of that at the start of epochs; evaluation_s: of evaluations, apart. n_ranks: how
-- many ranks recorded waits.
-- keep: no
CREATE TABLE input_waits AS
WITH jobs AS (SELECT DISTINCT cluster, job_id FROM run_members),
waits AS (
  SELECT p.cluster, p.job_id, p.rank, p.step, p.duration_s,
         CASE WHEN p.detail LIKE '%"bound":"upper"%' THEN 0 ELSE 1 END AS is_sure,
         CASE WHEN p.detail LIKE '%"part":"evaluation"%' THEN 1 ELSE 0 END AS is_evaluation,
         CASE WHEN p.detail LIKE '%"part":"epoch-start"%' THEN 1 ELSE 0 END AS is_begin
  FROM run_progress p
  JOIN jobs j ON p.cluster = j.cluster AND p.job_id = j.job_id
  LEFT JOIN shifted_jobs o ON p.cluster = o.cluster AND p.job_id = o.job_id
  WHERE o.job_id IS NULL AND p.event = 'stall' AND p.detail LIKE '%"cause":"data"%'
    AND p.duration_s IS NOT NULL),
by_rank AS (
  SELECT cluster, job_id, step, rank,
         sum(CASE WHEN is_evaluation = 0 THEN duration_s ELSE 0 END) AS wait_s,
         sum(CASE WHEN is_evaluation = 0 AND is_sure = 1 THEN duration_s ELSE 0 END) AS sure_s,
         sum(CASE WHEN is_evaluation = 0 AND is_begin = 1 THEN duration_s ELSE 0 END) AS begin_s,
         sum(CASE WHEN is_evaluation = 1 THEN duration_s ELSE 0 END) AS evaluation_s
  FROM waits GROUP BY cluster, job_id, step, rank),
by_step AS (
  SELECT cluster, job_id, step, max(wait_s) AS wait_s, max(sure_s) AS sure_s,
         max(begin_s) AS begin_s, max(evaluation_s) AS evaluation_s
  FROM by_rank GROUP BY cluster, job_id, step),
ranks AS (SELECT cluster, job_id, count(DISTINCT rank) AS n_ranks FROM waits GROUP BY cluster, job_id)
SELECT s.cluster, s.job_id, sum(s.wait_s) AS wait_s, sum(s.sure_s) AS sure_s,
       sum(s.begin_s) AS begin_s, sum(s.evaluation_s) AS evaluation_s, max(r.n_ranks) AS n_ranks
FROM by_step s JOIN ranks r ON s.cluster = r.cluster AND s.job_id = r.job_id
GROUP BY s.cluster, s.job_id ORDER BY s.cluster, s.job_id;
