"""Our Ibis expressions beside DuckDB SQL written by hand, on the report's three heaviest tables.

    python benchmarks/sql_beside.py [--scale 0.25] [--folder STORE] [--repeats 3] [--threads 2]

Both read the same store and must find the same: folding 50 million observations into episodes,
joining the episodes to the last minutes of 8.75 million allocations, and the mix of states and
sizes of 4 million attempts (times the scale). The anchor is 1.5 times the SQL's time.
"""

# ruff: noqa: S608 - the SQL is made of constants of this file

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANCHOR_RATIO = 1.5
HERE = Path(__file__).resolve().parent
Same = Callable[[dict[str, Any], Any], bool]

SEEN = """
SELECT e.event_id, e.cluster, e.node, e."check", v.code_key, coalesce(e.entity, '') AS entity_key,
       epoch_us(e.time) AS at_us, e.time, greatest(e.time, coalesce(e.time_end, e.time)) AS until,
       v.symptom, v.domain, v.rank, v.fault, v.down, v.sticky
FROM events e JOIN verdicts v
  ON e."check" = v."check" AND coalesce(e.code, '') = v.code_key AND e.severity = v.severity
WHERE e.node IS NOT NULL
UNION ALL
SELECT 'node_state/' || s.cluster || '/' || s.node || '/' || s.state || '/' || epoch_us(s.start),
       s.cluster, s.node, 'node-state', r.reason_class, '', epoch_us(s.start), s.start, s.start,
       r.symptom, r.domain, r.rank, r.fault, s.state = 'DOWN', false
FROM node_states s JOIN reasons r ON coalesce(s.reason, '') = r.reason_key
WHERE r.fault OR s.state = 'DOWN'
"""
EPISODES = f"""
CREATE OR REPLACE TEMP TABLE by_hand AS
WITH seen AS ({SEEN}),
stretches AS (
  SELECT cluster, node, "check", code_key, entity_key, symptom, domain, rank, fault, down, sticky,
         min(time) AS first, max(until) AS last, count(*) AS n_events,
         min({{'at_us': at_us, 'event_id': event_id}}) AS opening
  FROM seen GROUP BY ALL_KEYS, at_us // 180000000),
ordered AS (
  SELECT *, max(last) OVER (PARTITION BY cluster, node, "check", code_key, entity_key
    ORDER BY opening ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS covered FROM stretches),
begun AS (
  SELECT *, CASE WHEN covered IS NULL OR epoch_us(first) - epoch_us(covered)
    > CASE WHEN sticky THEN 10800000000 ELSE 180000000 END THEN 1 ELSE 0 END AS begins FROM ordered)
SELECT *, sum(begins) OVER (PARTITION BY cluster, node, "check", code_key, entity_key
  ORDER BY opening) AS episode FROM begun
""".replace(
    "ALL_KEYS",
    'cluster, node, "check", code_key, entity_key, symptom, domain, rank, fault, down, sticky',
)
WINDOW = """
CREATE OR REPLACE TEMP TABLE window_by_hand AS
WITH named AS (
  SELECT *, first_value(opening.event_id) OVER (PARTITION BY cluster, node, "check", code_key,
    entity_key, episode ORDER BY opening) AS episode_id FROM by_hand),
telling AS (
  SELECT *, unnest(range((epoch_us(first) - 300000000) // 3600000000,
                         (epoch_us(last) + 600000000) // 3600000000 + 1)) AS hour
  FROM named WHERE fault OR down)
SELECT a.attempt_id, a.node, t.episode_id, t."check", t.code_key, t.symptom, t.domain, t.rank,
       t.fault, t.down, max(a."end") AS "end",
       min(greatest(t.first, a.start, a."end" - INTERVAL 600 SECOND)) AS first
FROM allocations a JOIN telling t
  ON a.cluster = t.cluster AND a.node = t.node AND epoch_us(a."end") // 3600000000 = t.hour
WHERE t.first <= a."end" + INTERVAL 300 SECOND
  AND t.last >= greatest(a.start, a."end" - INTERVAL 600 SECOND)
GROUP BY ALL
"""
MIXES = (
    """SELECT state, count(*), sum(elapsed_s * n_gpus) / 3600, sum(elapsed_s * n_nodes) / 3600
       FROM attempts GROUP BY state""",
    """SELECT CASE WHEN n_gpus <= 1 THEN n_gpus ELSE 2 ** ceil(log2(n_gpus)) END::BIGINT AS size,
              count(*), sum(elapsed_s * n_gpus) / 3600, sum(elapsed_s * n_nodes) / 3600
       FROM attempts WHERE start IS NOT NULL GROUP BY size""",
)


def compared(folder: Path, threads: int, repeats: int) -> list[tuple[str, Any, Any]]:
    """For each table the best (seconds, CPU seconds) of ours and by hand.

    Raises:
        SystemExit: the two do not find the same.
    """
    from ettr.analysis import Analysis
    from ettr.attribution.episodes import explanatory_segments, observations, segments
    from ettr.attribution.verdicts import reasons, verdicts
    from ettr.attribution.window import observed
    from ettr.metrics.sizes import size_mix
    from ettr.metrics.status import status_mix
    from ettr.store import open_store
    from ettr.tables.materialize import materialize

    with open_store(str(folder)) as store:
        duck = store.backend.con
        duck.execute(f"SET threads = {threads}")
        analysis = Analysis(store)
        t, taxonomy = analysis.tables, analysis.taxonomy
        held: dict[str, Any] = {}

        def forget(name: str) -> None:
            # Ibis hands out what it still holds of an equal expression
            held.pop(name, None)
            gc.collect()

        def our_episodes() -> None:
            forget("parts")
            held["observations"] = observations(t["events"], t["node_states"], taxonomy)
            held["parts"] = materialize(segments(held["observations"]))

        def our_window() -> None:
            forget("seen")
            parts = explanatory_segments(held["parts"])
            held["seen"] = materialize(observed(parts, held["observations"], t["allocations"]))

        def our_mixes() -> None:
            held["states"], held["sizes"] = status_mix(t["attempts"]), size_mix(t["attempts"])

        def episodes_by_hand() -> None:
            # which observations are faults is looked up in the catalogue on both sides
            duck.register("verdicts", verdicts(t["events"], taxonomy).to_pyarrow())
            duck.register("reasons", reasons(t["node_states"], taxonomy).to_pyarrow())
            duck.execute(EPISODES)

        def mixes_by_hand() -> None:
            held["hand"] = [duck.execute(query).fetchall() for query in MIXES]

        found = []
        work: tuple[tuple[str, Callable[[], None], Callable[[], object], Same], ...]
        work = (
            ("episodes", our_episodes, episodes_by_hand, same_episodes),
            ("window join", our_window, lambda: duck.execute(WINDOW), same_window),
            ("states and sizes", our_mixes, mixes_by_hand, same_mixes),
        )
        for name, ours, by_hand, same in work:
            mine, theirs = in_turn(ours, by_hand, repeats)
            if not same(held, duck):
                raise SystemExit(f"{name}: the expression and the SQL do not find the same")
            found.append((name, mine, theirs))
        held.clear()
    return found


def same_episodes(held: dict[str, Any], duck: Any) -> bool:
    """Whether both folded into the same stretches and episodes."""
    ours = (
        held["parts"]
        .group_by("check", "code_key")
        .agg(
            lambda x: x.count().name("n"),
            lambda x: x["n_events"].sum().name("events"),
            lambda x: x["episode"].sum().name("episodes"),
        )
    )
    found = [tuple(row.values()) for row in ours.to_pyarrow().to_pylist()]
    by_hand = duck.execute(
        'SELECT "check", code_key, count(*), sum(n_events), sum(episode) FROM by_hand GROUP BY 1, 2'
    ).fetchall()
    return bool(found) and sorted(found) == sorted(by_hand)


def same_window(held: dict[str, Any], duck: Any) -> bool:
    """Whether both saw the same episodes in the same windows."""
    ours = held["seen"].to_pyarrow()
    by_hand = duck.sql("SELECT * FROM window_by_hand").to_arrow_table()
    order = [
        ("attempt_id", "ascending"),
        ("node", "ascending"),
        ("episode_id", "ascending"),
        ("check", "ascending"),
    ]
    names = by_hand.column_names
    return bool(ours.num_rows) and (
        ours.select(names).sort_by(order).to_pylist() == by_hand.sort_by(order).to_pylist()
    )


def same_mixes(held: dict[str, Any], duck: Any) -> bool:
    """Whether both count the same attempts and hours."""
    states = sorted((s.state, s.attempts, round(s.gpu_hours)) for s in held["states"].states)
    sizes = sorted((c.size.size_to, c.attempts, round(c.gpu_hours)) for c in held["sizes"].classes)
    by_hand = [sorted((a, n, round(g)) for a, n, g, _ in rows) for rows in held["hand"]]
    return [states, sizes] == by_hand


def in_turn(
    one: Callable[[], object], other: Callable[[], object], repeats: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Best (seconds, CPU seconds) of each, one after the other so that both meet the same load."""
    spent: tuple[list[tuple[float, float]], ...] = ([], [])
    for _ in range(repeats):
        for place, work in enumerate((one, other)):
            began, began_cpu = time.perf_counter(), time.process_time()
            work()
            spent[place].append((time.perf_counter() - began, time.process_time() - began_cpu))
    best = [(min(s for s, _ in each), min(c for _, c in each)) for each in spent]
    return best[0], best[1]


def main() -> int:
    """Print the ratios; 1 where one is above the anchor."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.25, help="of 4 million jobs")
    parser.add_argument("--folder", type=Path, help="a store made by report_pipeline.py --keep")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ettr-bench-") as temporary:
        folder = given.folder
        if folder is None:
            folder = Path(temporary) / "store"
            subprocess.run(
                [
                    sys.executable,
                    HERE / "report_pipeline.py",
                    "--step",
                    "generate",
                    "--folder",
                    folder,
                    "--scale",
                    str(given.scale),
                    "--threads",
                    str(given.threads),
                ],
                check=True,
            )
        found = compared(folder, given.threads, given.repeats)
    print(
        f"best of {given.repeats}, {given.threads} threads, anchor {ANCHOR_RATIO} times, "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'table':<18} {'ours s':>8} {'SQL s':>8} {'ratio':>6}   "
        f"{'ours CPU s':>10} {'SQL CPU s':>10} {'ratio':>6}"
    )
    over = False
    for name, (mine, mine_cpu), (theirs, theirs_cpu) in found:
        print(
            f"{name:<18} {mine:>8.2f} {theirs:>8.2f} {mine / theirs:>6.2f}   "
            f"{mine_cpu:>10.2f} {theirs_cpu:>10.2f} {mine_cpu / theirs_cpu:>6.2f}"
        )
        over |= min(mine / theirs, mine_cpu / theirs_cpu) > ANCHOR_RATIO
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
