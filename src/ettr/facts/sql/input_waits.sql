-- One row is a job of a listed run whose progress times its waits for data, in seconds: of several
-- ranks the slowest decides, step by step. wait_s: of the training; sure_s: of that what is no upper
-- bound; begin_s: of that at the start of epochs; evaluation_s: of evaluations, apart. n_ranks: how
-- many ranks recorded waits.
-- keep: no
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
GROUP BY s.cluster, s.job_id ORDER BY s.cluster, s.job_id
