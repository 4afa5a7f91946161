"""What ran of a selection: its attempts, clipped at the ends of the period, and what they held.

Hours belong to the period in which they ran, to the microsecond. An attempt, with its end and all
that it lost, belongs to the period in which it ended; one that is still open to that of the end of
the logs. So the parts of a partition of the rows add up to the whole.

- `chosen` is one row an attempt that ran or ended in the period, with the columns of `attempts`;
  `start_us`, `end_us`, `elapsed_s` and `suspended_s` are clipped to it. `belongs`: it ended in the
  period and counts as an attempt; the others add time alone. `node_share`: the part of its nodes
  that is chosen. `parts_node_s`, `parts_gpu_s`: what the parts of a heterogeneous job, or the nodes
  of an attempt, held where these ran for different times; `elapsed_s` times a count is then wrong.
- `held` is one row a chosen node of these, with the columns of `allocations`, clipped likewise.
- `accounted` are the rows of `chosen` with the parts of heterogeneous jobs apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ettr.facts.facts import EPOCH, Facts
from ettr.facts.files import made
from ettr.facts.het_jobs import PARTS_HELD_S
from ettr.facts.stored import NO_GPUS, in_life, kept, narrow_columns, raw_sql, selected
from ettr.selection import Selection
from ettr.tables import TABLES
from ettr.tables.schemas import ALLOCATIONS, ATTEMPTS

_LASTING_S = ("elapsed_s", "suspended_s", *PARTS_HELD_S.values())


def microseconds(moment: datetime | None) -> int | None:
    """Microseconds from 1970 to a moment with a zone."""
    return None if moment is None else (moment - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Source:
    """Tables of the engine that a selection is made from, and the columns of the first."""

    attempts: str
    allocations: str
    columns: tuple[str, ...]
    name: str


@made("asked", (("kind", "VARCHAR"), ("name", "VARCHAR")), takes=("selection",))
def _asked(facts: Facts) -> list[tuple[object, ...]]:
    """The names of each filter."""
    chosen: Selection = facts.given("selection")
    kinds = {**chosen.of_jobs, "node": chosen.node, "gpu_type": chosen.gpu_type}
    return [(kind, name) for kind, names in kinds.items() for name in names]


@made("asked_nodes", (("node", "VARCHAR"),), takes=("asked_node_names",))
def _asked_nodes(facts: Facts) -> list[tuple[object, ...]]:
    """Names of nodes that a question asks about."""
    return [(name,) for name in sorted(facts.given("asked_node_names"))]


@made(
    "chosen",
    (),
    reads=(
        "attempts",
        "allocations",
        "nodes",
        "asked",
        "accounted",
        "het_attempts",
        "node_classes",
        "held",
        "moved_attempts",
    ),
    takes=("selection", "logs_end_us", "small", "het_jobs", "all_listed"),
)
def _chosen(facts: Facts) -> str:
    """One row is a selected attempt, clipped at the ends of the period."""
    source = _of_wholes(facts)
    if facts.given("selection").is_everything:
        return _everything(facts, source)
    sql = _attempts_sql(facts, source)
    if facts.given("het_jobs").whole_of:
        sql = _with_parts_held(facts, kept(facts, "chosen_wholes", sql, "attempts"), source)
    return kept(facts, "chosen", _by_node(facts, sql, source, "held"), "attempts")


@made(
    "all_attempts",
    (),
    reads=("attempts", "allocations", "moved_attempts"),
    takes=("het_jobs", "all_listed"),
)
def _all_attempts(facts: Facts) -> str:
    """One row is an attempt of any selection, with all its time; columns as `chosen`."""
    return _everything(facts, _of_wholes(facts))


@made(
    "held",
    (),
    reads=("attempts", "allocations", "nodes", "asked", "node_classes"),
    takes=("selection", "logs_end_us", "small"),
)
def _held(facts: Facts) -> str:
    """One row is a selected node of a selected attempt, clipped likewise."""
    chosen: Selection = facts.given("selection")
    source = _of_wholes(facts)
    if chosen.is_everything:
        return source.allocations
    columns, where = selected(ALLOCATIONS, "r"), _where(_holding(facts, source))
    rows = f"SELECT {columns} FROM {_near(facts, 'allocations')} r{where}"
    if chosen.has_period:
        rows = _clipped(facts, rows, tuple(narrow_columns(ALLOCATIONS)), belongs=False)
    return kept(facts, "held", rows, "allocations")


@made(
    "accounted",
    (),
    reads=(
        *("attempts", "parts_attempts", "parts_allocations", "allocations", "nodes", "asked"),
        *("node_classes", "held", "moved_attempts"),
    ),
    takes=("selection", "logs_end_us", "small", "het_jobs", "all_listed"),
)
def _accounted(facts: Facts) -> str:
    """One row is a selected attempt as the log has it, parts of heterogeneous jobs apart."""
    if not facts.given("het_jobs").ids:
        return facts.table("chosen")
    attempts, held = facts.table("parts_attempts"), facts.table("parts_allocations")
    source = _Source(attempts, held, tuple(narrow_columns(ATTEMPTS)), "parts")
    if facts.given("selection").is_everything:
        return _everything(facts, source)
    sql = _by_node(facts, _attempts_sql(facts, source), source, "held")
    return kept(facts, "accounted", sql, "attempts")


def facts_of_jobs(
    facts: Facts,
    partition: tuple[str, ...] = (),
    cluster: tuple[str, ...] = (),
    others: bool = False,
    above_gpus: int | None = None,
) -> Facts:
    """The facts with `chosen`, `exposure`, `exposure_nodes`, `failures` of some jobs alone."""
    bound: dict[str, object] = {}
    conditions = []
    for column, names in (("partition", partition), ("cluster", cluster)):
        if names:
            given = {f"{column}_{place}": name for place, name in enumerate(names)}
            bound |= given
            wanted = f'coalesce("{column}" IN ({", ".join(f"${one}" for one in given)}), FALSE)'
            conditions.append(f"NOT {wanted}" if others else wanted)
    if above_gpus is not None:
        bound["above"] = above_gpus
        conditions.append("n_gpus > $above")
    if not conditions:
        return facts
    sql = f"SELECT attempt_id FROM {facts.table('chosen')} WHERE {' AND '.join(conditions)}"
    return facts_of_attempts(facts, facts.keep("part_attempts", sql, view=False, bound=bound))


def facts_of_attempts(facts: Facts, ids: str) -> Facts:
    """The facts with `chosen`, `exposure`, `exposure_nodes`, `failures` of some attempts."""
    parts = {
        name: facts.keep(
            f"part_{name}",
            f"SELECT t.* FROM {facts.table(name)} t "
            f"WHERE t.attempt_id IN (SELECT attempt_id FROM {ids})",
            view=True,
        )
        for name in ("chosen", "exposure", "exposure_nodes", "failures")
    }
    return facts.over(**parts)


def _of_wholes(facts: Facts) -> _Source:
    columns = tuple(narrow_columns(ATTEMPTS))
    if facts.given("het_jobs").wholes:
        columns += tuple(PARTS_HELD_S.values())
    return _Source(facts.table("attempts"), facts.table("allocations"), columns, "whole")


_OF_ALL_ROWS = ("cancellers", "clusters_without_gpus", "het_wholes", "het_attempts")
"""What attempts and allocations are made with, whatever is selected."""


def _near(facts: Facts, name: str) -> str:
    """A table without what neither ran nor ended in the period, as far as stored columns say.

    Of these alone Parquet has statistics, by which an engine passes over row groups.
    """
    chosen: Selection = facts.given("selection")
    large = {"attempts", "allocations"} - facts.given("small")
    if not large or not (chosen.has_period or chosen.cluster) or facts.given("naming").tables:
        return facts.table(name)
    whole = {one: facts.table(one) for one in _OF_ALL_ROWS}
    return facts.over(**whole, **{f"raw_{one}": _raw_near(facts, one) for one in large}).table(name)


def _raw_near(facts: Facts, name: str) -> str:
    chosen: Selection = facts.given("selection")
    since, until = microseconds(chosen.since), microseconds(chosen.until)
    conditions, either = [], ["TRUE"]
    if since is not None:
        conditions.append(f'("end" IS NULL OR "end" >= make_timestamptz({since}))')
    if chosen.cluster and name == ATTEMPTS.name:
        names = ", ".join("'" + one.replace("'", "''") + "'" for one in chosen.cluster)
        conditions.append(f"cluster IN ({names})")
    # what is open is of the period in which the logs end
    if until is not None and until <= facts.given("logs_end_us"):
        limit = f"make_timestamptz({until})"
        either = [
            f'"start" < {limit}',
            f'"end" < {limit} AND ("start" IS NULL OR "start" >= {limit})',
        ]
    stored = raw_sql(TABLES[name], facts.given("sources")(name))
    sql = " UNION ALL ".join(stored + _where([*conditions, one]) for one in either)
    return facts.keep(f"raw_{name}", sql, view=True)


def _everything(facts: Facts, source: _Source) -> str:
    columns = ", ".join(f'r."{name}"' for name in source.columns)
    sql = (
        f"SELECT {columns}{_parts_unknown(source)}, TRUE AS belongs, "
        f"CAST(1.0 AS DOUBLE) AS node_share FROM {source.attempts} r"
    )
    return facts.keep("chosen", _by_node(facts, sql, source, "allocations"), view=True)


def _by_node(facts: Facts, rows: str, source: _Source, held: str) -> str:
    """The same attempts; those whose nodes ran for different times with what each of these held."""
    if facts.given("all_listed") or not facts.rows("moved_attempts"):
        return rows
    sums = {
        "parts_node_s": "sum(h.elapsed_s)",
        "parts_gpu_s": "CASE WHEN count(h.n_gpus) = count(*) THEN sum(h.elapsed_s * h.n_gpus) END",
    }
    names = [name for name in source.columns if name not in sums]
    # hours of attempts are those times the selected part of their nodes
    exact = [
        f"CASE WHEN m.attempt_id IS NULL THEN w.{name} WHEN p.attempt_id IS NULL THEN 0.0 "
        f"ELSE p.{name} / w.node_share END AS {name}"
        for name in sums
    ]
    columns = ", ".join([*(f'w."{name}"' for name in (*names, "node_share", "belongs")), *exact])
    moved = facts.table("moved_attempts")
    held_by = (
        f"SELECT h.attempt_id, {', '.join(f'{one} AS {name}' for name, one in sums.items())} "
        f"FROM {facts.table(held)} h JOIN {moved} m ON h.attempt_id = m.attempt_id "
        "GROUP BY h.attempt_id"
    )
    return (
        f"SELECT {columns} FROM ({rows}) w LEFT JOIN {moved} m ON w.attempt_id = m.attempt_id "
        f"LEFT JOIN ({held_by}) p ON w.attempt_id = p.attempt_id"
    )


def _parts_unknown(source: _Source) -> str:
    return "".join(
        f', CAST(NULL AS DOUBLE) AS "{name}"'
        for name in PARTS_HELD_S.values()
        if name not in source.columns
    )


def _attempts_sql(facts: Facts, source: _Source) -> str:
    """The attempts of a selection that leaves something out."""
    chosen: Selection = facts.given("selection")
    columns = ", ".join(f'r."{name}"' for name in source.columns)
    share, join = "CAST(1.0 AS DOUBLE)", ""
    if chosen.of_nodes:
        share, join = (
            "s.node_share",
            f" JOIN {_shares(facts, source)} s ON r.attempt_id = s.attempt_id",
        )
    near = _near(facts, "parts_attempts" if source.name == "parts" else "attempts")
    rows = (
        f"SELECT {columns}{_parts_unknown(source)}, {share} AS node_share "
        f"FROM {near} r{join}{_where(_of_jobs(facts, 'r'))}"
    )
    names = (
        *source.columns,
        *(n for n in PARTS_HELD_S.values() if n not in source.columns),
        "node_share",
    )
    if chosen.has_period:
        return _clipped(facts, rows, names, belongs=True)
    return f"SELECT x.*, TRUE AS belongs FROM ({rows}) x"


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _of_jobs(facts: Facts, rows: str) -> list[str]:
    """Conditions on the partitions, accounts, users, QOS and clusters of attempts."""
    chosen: Selection = facts.given("selection")
    asked = facts.table("asked") if chosen.of_jobs else ""
    return [
        f"{rows}.\"{kind}\" IN (SELECT name FROM {asked} WHERE kind = '{kind}')"
        for kind in chosen.of_jobs
    ]


def _on_nodes(facts: Facts, rows: str) -> list[str]:
    """Conditions on the nodes of rows with `cluster`, `node` and `start_us`."""
    chosen: Selection = facts.given("selection")
    found = []
    if chosen.node:
        found.append(
            f"{rows}.node IN (SELECT name FROM {facts.table('asked')} WHERE kind = 'node')"
        )
    if chosen.gpu_type:
        of_type = (
            f"EXISTS (SELECT 1 FROM {facts.table('node_classes')} t JOIN {facts.table('asked')} a "
            f"ON CASE WHEN t.has_gpus THEN t.gpu_type ELSE '{NO_GPUS}' END = a.name "
            f"AND a.kind = 'gpu_type' WHERE t.cluster = {rows}.cluster AND t.node = {rows}.node "
            f"AND {in_life('t', rows)})"
        )
        found.append(of_type)
    return found


def _holding(facts: Facts, source: _Source) -> list[str]:
    """Conditions on the allocations of a selection."""
    found = _on_nodes(facts, "r")
    jobs = _of_jobs(facts, "j")
    if jobs:
        found.append(
            f"r.attempt_id IN (SELECT j.attempt_id FROM {source.attempts} j{_where(jobs)})"
        )
    return found


def _shares(facts: Facts, source: _Source) -> str:
    """By attempt on a chosen node, the part of its nodes that is chosen."""
    on_nodes = " AND ".join(_on_nodes(facts, "r"))
    sql = (
        "SELECT attempt_id, "
        "CAST(sum(is_chosen) AS DOUBLE) / CAST(count(*) AS DOUBLE) AS node_share "
        f"FROM (SELECT r.attempt_id, CASE WHEN {on_nodes} THEN 1 ELSE 0 END AS is_chosen "
        f"FROM {source.allocations} r) x GROUP BY attempt_id HAVING sum(is_chosen) > 0"
    )
    return facts.keep(f"{source.name}_node_shares", sql, view=False)


def _clipped(facts: Facts, rows: str, names: tuple[str, ...], *, belongs: bool) -> str:
    """Rows with the time that they ran within the period, those without any left out."""
    chosen: Selection = facts.given("selection")
    since, until = microseconds(chosen.since), microseconds(chosen.until)
    ended = f"coalesce(end_us, {int(facts.given('logs_end_us'))})"
    inside = [f"{ended} >= {since}"] if since is not None else []
    inside += [f"{ended} < {until}"] if until is not None else []
    touches = [f"(end_us IS NULL OR end_us >= {since})"] if since is not None else []
    if until is not None:
        touches.append(f"(coalesce(start_us < {until}, TRUE) OR coalesce(end_us < {until}, TRUE))")
    ran = "elapsed_s + coalesce(suspended_s, 0.0)" if "suspended_s" in names else "elapsed_s"
    finish = f"coalesce(end_us, start_us + CAST(round(({ran}) * 1000000) AS BIGINT))"
    low = "start_us" if since is None else f"greatest(start_us, {since})"
    high = "finish_us" if until is None else f"least(finish_us, {until})"
    changed = {name: f"{name} * share" for name in _LASTING_S if name in names}
    if since is not None:
        changed["start_us"] = (
            f"CASE WHEN start_us IS NULL THEN NULL ELSE greatest(start_us, {since}) END"
        )
    if until is not None:
        changed["end_us"] = f"CASE WHEN finish_us > {until} THEN {until} ELSE end_us END"
    columns = ", ".join(
        f'{changed[name]} AS "{name}"' if name in changed else f'"{name}"' for name in names
    )
    return (
        f"WITH of_selection AS ({rows}), "
        f"timed AS (SELECT *, {finish} AS finish_us, {' AND '.join(inside)} AS belongs "
        f"FROM of_selection WHERE {' AND '.join(touches)}), "
        # what never began ran at no time: the greater of null and a number is the number
        "inner_time AS (SELECT *, CASE WHEN start_us IS NULL THEN 0 "
        f"ELSE coalesce(greatest({high} - {low}, 0), 0) END AS inside_us FROM timed), "
        "shared AS (SELECT *, CASE WHEN finish_us - start_us > 0 "
        "THEN CAST(inside_us AS DOUBLE) / CAST(finish_us - start_us AS DOUBLE) "
        "WHEN belongs THEN 1.0 ELSE 0.0 END AS share "
        "FROM inner_time WHERE belongs OR inside_us > 0) "
        f"SELECT {columns}{', belongs' if belongs else ''} FROM shared"
    )


def _with_parts_held(facts: Facts, wholes: str, source: _Source) -> str:
    """Chosen attempts with what the parts of heterogeneous jobs held of the selection."""
    sums, exact = [], {}
    for count, name in PARTS_HELD_S.items():
        sums.append(
            "CASE WHEN sum(CASE WHEN p.elapsed_s * p.node_share > 0 "
            f"AND p.{count} IS NULL THEN 1 ELSE 0 END) > 0 THEN NULL "
            f'ELSE coalesce(sum(p.elapsed_s * p.node_share * p.{count}), 0.0) END AS "{name}"'
        )
        exact[name] = (
            # what has no part in the selection held nothing in it
            f"CASE WHEN w.het_job_id IS NOT NULL AND p.whole_id IS NULL THEN 0.0 "
            # hours of attempts are those times the selected part of their nodes
            f'WHEN w.het_job_id IS NOT NULL THEN p."{name}" / w.node_share ELSE w."{name}" END'
        )
    names = (*source.columns, "node_share", "belongs")
    columns = ", ".join(f'{exact[n]} AS "{n}"' if n in exact else f'w."{n}"' for n in names)
    held = (
        f"SELECT h.whole_id, {', '.join(sums)} FROM {facts.table('accounted')} p "
        f"JOIN {facts.table('het_attempts')} h ON p.attempt_id = h.part_id GROUP BY h.whole_id"
    )
    return f"SELECT {columns} FROM {wholes} w LEFT JOIN ({held}) p ON w.attempt_id = p.whole_id"
