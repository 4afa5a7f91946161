"""What a fit and a back-test read of a cluster, real or simulated, as columns in memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ettr.analysis.analysis import Analysis
from ettr.analysis.node_faults import faults_of
from ettr.attribution.rules import LogMatching
from ettr.estimates import Interval
from ettr.facts import Facts
from ettr.facts.stored import stored_rows
from ettr.metrics.faults import NodeFaults, NodeKey
from ettr.metrics.instants import Floats, floats_of, seconds_of
from ettr.sim.cluster.faults import DOWN
from ettr.sim.cluster.scenario import ENTRY_KEYS, EVIDENCE, MOST_GPUS_PER_NODE, ClusterScenario
from ettr.sim.cluster.scenario_parts import Checkpoints, Part
from ettr.units import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    import pyarrow as pa


Flags = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
Places = npt.NDArray[np.int64]
LOST_CAP_S = 1800.0
"""Work that a failure loses at most, as in the report."""
_OF_ALL_OTHERS = ("node-hardware", "system-services")
"""Under these a fit puts what it has no symptom for."""
_SYMPTOMS = {trace.reason: symptom for symptom, trace in EVIDENCE.items()}
LEAST_FREE = 8
"""Fewer repairs beyond one of each kind say little of how far they spread."""
LEAST_SAVES = 20
"""Fewer say little of the interval between checkpoints."""
OWN_ENDS = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "TIMEOUT")
"""End states by which a job comes to its own end, unless the infrastructure ended it."""
COLUMNS = (
    *("cluster", "job_id", "attempt_id", "user", "name", "qos", "priority", "state"),
    *("submit", "eligible", "start", "end", "elapsed_s", "time_limit_s", "n_nodes", "n_gpus"),
    *("requested_nodes", "requested_gpus", "n_cpus"),
)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts in order of job and submission; times in seconds since 1970, NaN where unknown.

    Attributes:
        size: GPUs asked for, or what is counted in their place (`Machine.unit`).
        silent: Whether it ended as a node of it was given up that no longer answered: it had done
            nothing since.
    """

    attempt_id: Texts
    job: Places
    is_first: Flags
    is_last: Flags
    user: Texts
    name: Texts
    qos: Texts
    priority: Floats
    state: Texts
    submit_s: Floats
    eligible_s: Floats
    start_s: Floats
    end_s: Floats
    limit_s: Floats
    size: Floats
    n_nodes: Floats
    failed: Flags
    silent: Flags

    def __len__(self) -> int:
        return self.job.size


@dataclass(frozen=True, slots=True)
class Machine:
    """The nodes, and what their jobs ask for."""

    n_nodes: int
    per_node: int
    unit: str
    bare: frozenset[NodeKey] = frozenset()

    def has(self, cluster: str, node: str | None) -> bool:
        """Whether a node may be one of them: one that a log does not name may."""
        return (cluster, node) not in self.bare


@dataclass(frozen=True, slots=True)
class OutageSpans:
    """Unplanned outages of nodes; times in seconds since 1970.

    Attributes:
        kind: The symptom, where it is one that a scenario keeps apart; empty for all others.
    """

    node: npt.NDArray[np.int64]
    start_s: Floats
    end_s: Floats
    kind: Texts


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """A cluster as its logs show it.

    Attributes:
        has_failures: Whether its logs could show that the infrastructure ended a job.
        bare_jobs: Jobs that are left out, since they ask for no GPUs where GPUs are counted.
        save_end_s: Of the checkpoints that training recorded, one after another of a run.
        save_gap_s: Since the one before.
    """

    attempts: Attempts
    outages: OutageSpans | None
    machine: Machine
    has_jobs: bool
    has_failures: bool
    bare_jobs: int = 0
    save_end_s: Floats = field(default_factory=lambda: np.empty(0))
    save_gap_s: Floats = field(default_factory=lambda: np.empty(0))

    def save_interval_s(self, begin_s: float, end_s: float) -> tuple[float, int] | None:
        """Median interval between checkpoints in a time, of how many; None for too few."""
        gaps_s = self.save_gap_s[(self.save_end_s >= begin_s) & (self.save_end_s < end_s)]
        return (float(np.median(gaps_s)), gaps_s.size) if gaps_s.size >= LEAST_SAVES else None


def attempts_of(
    rows: pa.Table, failed: Collection[str], unit: str, silent: Collection[str] = ()
) -> Attempts:
    """The columns of attempts."""
    rows = rows.sort_by(
        [("cluster", "ascending"), ("job_id", "ascending"), ("submit", "ascending")]
    )
    texts = {name: _texts(rows[name]) for name in (*COLUMNS[:6], "state")}
    keys = [f"{c}/{j}" for c, j in zip(texts["cluster"], texts["job_id"], strict=True)]
    begins = np.ones(len(keys), dtype=np.bool_)
    begins[1:] = [one != before for before, one in pairwise(keys)]
    ends = np.append(begins[1:], True)[: len(keys)]
    return Attempts(
        attempt_id=texts["attempt_id"],
        job=np.cumsum(begins) - 1,
        is_first=begins,
        is_last=ends,
        user=texts["user"],
        name=texts["name"],
        qos=texts["qos"],
        priority=floats_of(rows["priority"]),
        state=texts["state"],
        submit_s=seconds_of(rows["submit"]),
        eligible_s=seconds_of(rows["eligible"]),
        start_s=seconds_of(rows["start"]),
        end_s=seconds_of(rows["end"]),
        limit_s=floats_of(rows["time_limit_s"]),
        size=_sizes(rows, unit),
        n_nodes=floats_of(rows["n_nodes"]),
        failed=_is_in(texts["attempt_id"], failed),
        silent=_is_in(texts["attempt_id"], silent),
    )


def whole_sizes(attempts: Attempts, machine: Machine) -> Floats:
    """GPUs asked for, whole nodes where they are more than those of one; NaN where unknown."""
    size = np.where(attempts.size > 0, attempts.size, np.nan)
    per_node = machine.per_node
    found: Floats = np.where(size > per_node, np.ceil(size / per_node) * per_node, np.ceil(size))
    return found


def work_of(
    attempts: Attempts,
    rules: Checkpoints,
    silence_s: float,
    machine: Machine,
    known: Flags,
    end_s: float,
) -> tuple[Floats, Flags]:
    """Length of the work of each job, at its last attempt, and whether it came to its end."""
    until_s = np.where(attempts.silent, attempts.end_s - silence_s, attempts.end_s)
    until_s = np.where(until_s < end_s, until_s, end_s)
    elapsed_s = np.nan_to_num(np.maximum(until_s - attempts.start_s, 0.0))
    gang = attempts.size >= machine.per_node
    moved_s = np.where(gang, np.maximum(elapsed_s - rules.restart_s, 0.0), elapsed_s)
    written = moved_s // (rules.interval_s + rules.write_s)
    rest_s = moved_s - written * (rules.interval_s + rules.write_s)
    write_s = written * rules.write_s + np.maximum(0.0, rest_s - rules.interval_s)
    done_s = moved_s - np.where(gang, write_s, 0.0)
    own = np.isin(attempts.state.astype(str), OWN_ENDS) & ~attempts.failed
    own &= attempts.end_s < end_s
    kept_s = np.where(gang & ~own, written * rules.interval_s, 0.0)
    kept_s[~known] = 0.0
    total_s = np.bincount(attempts.job, weights=kept_s, minlength=int(attempts.job.max()) + 1)
    before_s = total_s[attempts.job] - kept_s
    return done_s + before_s, own & (attempts.state != "TIMEOUT")


def _is_in(ids: Texts, wanted: Collection[str]) -> Flags:
    found: Flags = np.isin(ids.astype(str), list(wanted)) if wanted else np.zeros(ids.size, bool)
    return found


def _texts(column: pa.ChunkedArray) -> Texts:
    return np.array([one or "" for one in column.to_pylist()], dtype=object)


def _sizes(rows: pa.Table, unit: str) -> Floats:
    """What each asked for, or had where that is not known; NaN where neither is."""
    names = {
        "GPUs": ("requested_gpus", "n_gpus"),
        "CPUs": ("n_cpus",),
        "nodes": ("requested_nodes", "n_nodes"),
    }[unit]
    found = np.full(rows.num_rows, np.nan)
    for name in names:
        values = floats_of(rows[name])
        found = np.where(~(found > 0) & (values > 0), values, found)
    return found


def check_one_cluster(analysis: Analysis) -> None:
    """Check that a store is of one cluster.

    Raises:
        UsageError: it holds several, of which several may have nodes of one name.
    """
    from ettr.errors import UsageError

    clusters = analysis.logs_clusters
    if len(clusters) > 1:
        few = ", ".join(clusters[:5]) + (", ..." if len(clusters) > 5 else "")
        raise UsageError(
            f"{analysis.store.where}: holds {len(clusters)} clusters ({few}); a scenario is of "
            "one: give a store of one"
        )


def site_record(analysis: Analysis, *, with_bare_jobs: bool = False) -> SiteRecord:
    """The cluster of a store, by all of its logs.

    Args:
        with_bare_jobs: Jobs that ask for no GPUs are among its attempts.
    """
    check_one_cluster(analysis)
    import pyarrow as pa

    rows = recorded_attempts(analysis.facts)
    machine = machine_of(analysis, rows)
    failures = analysis.facts.columns("all_failures")["attempt_id"].tolist()
    read = analysis.logs_read
    bare_jobs = 0
    if machine.unit == "GPUs" and not with_bare_jobs:
        asks = asks_for_none(rows)
        bare_jobs = len(set(np.array(rows["job_id"].to_pylist(), dtype=object)[asks].tolist()))
        rows = rows.filter(pa.array(~asks))
    saves = analysis.facts.columns("save_gaps") if read.progress else {}
    end_s, gap_s = (
        np.asarray(saves.get(name, ()), dtype=np.float64) / MICROSECONDS_PER_SECOND
        for name in ("end_us", "gap_us")
    )
    return SiteRecord(
        attempts=attempts_of(rows, failures, machine.unit, silent_ends(analysis)),
        outages=_outages(analysis, machine),
        machine=machine,
        has_jobs=bool(read.jobs),
        has_failures=bool(read.jobs),
        bare_jobs=bare_jobs,
        save_end_s=end_s,
        save_gap_s=gap_s,
    )


def recorded_attempts(facts: Facts) -> pa.Table:
    """Attempts of all of the logs, with `COLUMNS`, their accounts and times as timestamps."""
    return stored_rows(facts, "attempts", *COLUMNS, "account")


def machine_of(analysis: Analysis, rows: pa.Table) -> Machine:
    """The nodes of a store, and what its jobs ask for."""
    unit, per_node = _unit(analysis, rows)
    fleet = analysis.logs_fleet
    bare = frozenset(
        # on a node of which only jobs show the GPUs there may be some that none held
        node
        for node, n_gpus in fleet.gpus.items()
        if n_gpus == 0 and node not in fleet.gpus_of_jobs
    )
    if unit != "GPUs" or not any(n_gpus > 0 for n_gpus in fleet.gpus.values()):
        bare = frozenset()
    return Machine(max(1, len(fleet.spans_s.keys() - bare)), per_node, unit, bare)


def asks_for_none(rows: pa.Table) -> Flags:
    """Which attempts are known to ask for no GPUs, or have run without any."""
    asked, held = floats_of(rows["requested_gpus"]), floats_of(rows["n_gpus"])
    # one that has not started holds none, whatever it asks for
    ran_without = (held == 0) & ~np.isnan(seconds_of(rows["start"]))
    found: Flags = ((asked == 0) | (np.isnan(asked) & ran_without)) & ~(held > 0)
    return found


def silent_ends(analysis: Analysis) -> set[str]:
    """Ids of attempts that a failed node ended as the scheduler gave it up for not answering."""
    gone_s: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in analysis.outages:
        gone_s[one.cluster, one.node] += one.silent_from_s
    if not any(gone_s.values()):
        return set()
    tolerance_s = (analysis.assumptions.matching or LogMatching()).tolerance_s
    rows = analysis.facts.columns("ended_by_nodes")
    names = (rows[name].tolist() for name in ("attempt_id", "cluster", "node"))
    return {
        attempt_id
        for attempt_id, cluster, node, end_s in zip(
            *names, (rows["end_us"] / MICROSECONDS_PER_SECOND).tolist(), strict=True
        )
        if any(abs(end_s - at_s) <= tolerance_s for at_s in gone_s.get((cluster, node), ()))
    }


def _unit(analysis: Analysis, rows: pa.Table) -> tuple[str, int]:
    """What jobs ask for, and how much of it a node has."""
    gpus = np.array(list(analysis.logs_fleet.gpus.values()), dtype=np.float64)
    gpus = gpus[gpus > 0]
    # a job that never started holds none, and has asked for some
    named = (floats_of(rows["n_gpus"]) > 0) | (floats_of(rows["requested_gpus"]) > 0)
    if rows.num_rows == 0 or named.mean() > 0.5:
        return "GPUs", _mode(gpus) if gpus.size else 8
    cpus, nodes = floats_of(rows["n_cpus"]), floats_of(rows["n_nodes"])
    each = (cpus / np.maximum(nodes, 1.0))[(nodes > 0) & (cpus > 0)]
    if each.size and each.max() <= MOST_GPUS_PER_NODE:
        return "CPUs", int(np.ceil(each.max()))
    return "nodes", 1


def _mode(values: Floats) -> int:
    kinds, counts = np.unique(values, return_counts=True)
    return int(kinds[np.argmax(counts)])


def _outages(analysis: Analysis, machine: Machine) -> OutageSpans | None:
    faults = site_faults(analysis)
    if faults is None:
        return None
    return outages_of(faults.of_nodes([machine.has(*node) for node in faults.nodes]))


def outages_of(faults: NodeFaults) -> OutageSpans:
    """Time out of service that faults caused."""
    known = faults.has_outage | ~np.isnan(faults.down_s)
    start_s, down_s = faults.start_s[known], np.nan_to_num(faults.down_s[known])
    ends_s = np.where(faults.is_over[known], start_s + down_s, np.nan)
    return OutageSpans(faults.node[known], start_s, ends_s, _kinds(faults.category[known]))


def _kinds(symptoms: Iterable[str]) -> Texts:
    kept = [one if one in EVIDENCE and one not in _OF_ALL_OTHERS else "" for one in symptoms]
    return np.array(kept, dtype=object)


def site_faults(analysis: Analysis) -> NodeFaults | None:
    """Faults of the nodes; None where no log could show any."""
    read = analysis.logs_read
    faults, _ = faults_of(analysis.facts, analysis.given)
    return faults if len(faults) or read.node_states else None


def simulated_record(
    tables: dict[str, pa.Table], truth: dict[str, pa.Table], machine: Machine
) -> SiteRecord:
    """The cluster of a simulation, as its logs would show it.

    A fault that no log shows and that leaves its node up is a failure of the user to the analysis,
    and so it is here.
    """
    faults = truth["faults"].select(["fault", "is_seen", "effect"]).to_pylist()
    seen = {row["fault"] for row in faults if row["is_seen"]}
    down = {row["fault"] for row in faults if row["effect"] == DOWN}
    ended = truth["attempts"].select(["attempt_id", "fault", "end"]).to_pylist()
    failed = [
        row["attempt_id"]
        for row in ended
        if row["fault"] is not None and (row["end"] == "NODE_FAIL" or row["fault"] in seen)
    ]
    silent = [row["attempt_id"] for row in ended if row["fault"] in down]
    return SiteRecord(
        attempts=attempts_of(tables["attempts"], failed, "GPUs", silent),
        outages=_merged(tables["node_states"]),
        machine=replace(machine, unit="GPUs"),
        has_jobs=True,
        has_failures=True,
    )


def _merged(states: pa.Table) -> OutageSpans:
    """States of one node that overlap or touch are one outage."""
    rows = states.select(["node", "start", "end", "reason"]).sort_by(
        [("node", "ascending"), ("start", "ascending")]
    )
    nodes = rows["node"].to_pylist()
    starts, ends = seconds_of(rows["start"]).tolist(), seconds_of(rows["end"]).tolist()
    reasons = rows["reason"].to_pylist()
    merged: list[list[float]] = []
    kinds: list[str] = []
    number, last = -1, None
    for node, start_s, end_s, reason in zip(nodes, starts, ends, reasons, strict=True):
        number += node != last
        if node == last and start_s <= merged[-1][2]:
            merged[-1][2] = end_s  # states of a node follow each other: the later ends later
        else:
            merged.append([number, start_s, end_s])
            kinds.append(_SYMPTOMS.get(reason, ""))
        last = node
    columns = np.array(merged, dtype=np.float64).reshape(-1, 3)
    return OutageSpans(columns[:, 0].astype(np.int64), columns[:, 1], columns[:, 2], _kinds(kinds))


def spread_within(hours: Floats, kind: Texts) -> tuple[float, int] | None:
    """How far times spread within kinds: sigma of their logarithms, and its degrees of freedom.

    About the mean of each kind: how far the kinds lie apart does not hide how alike each is. None
    where there are too few times for it.
    """
    logs = np.log(hours + 1.0 / 60.0)
    kinds, place, n = np.unique(kind.astype(str), return_inverse=True, return_counts=True)
    free = hours.size - kinds.size
    if free < LEAST_FREE:
        return None
    rest = logs - (np.bincount(place, logs) / n)[place]
    return float(np.sqrt(rest @ rest / free)), free


# -- values of a scenario as a fit makes them: a number, its interval, where it comes from ---------


Z90 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class Fitted:
    """One value of a scenario that logs bear."""

    value: float | str
    what: str
    low: float | None = None
    high: float | None = None

    @staticmethod
    def of(interval: Interval, what: str) -> Fitted:
        """From an interval; an end that the data do not bound is put as far as the other one."""
        value = interval.estimate or 0.0
        low, high = interval.low, interval.high
        if not math.isfinite(high):
            high = value * value / low if low > 0 else value * 10.0
        return Fitted(value, what, min(max(low, 0.0), value), max(high, value))


@dataclass(slots=True)
class ScenarioMaker:
    """Puts fitted values into a scenario, and keeps the sources of all.

    Attributes:
        not_fitted: Values that are those of the base or assumed without it, with the reason; a
            field of a list once, as `faults.*.as_new_share`.
    """

    base: ClusterScenario
    origin: str
    not_fitted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _groups: dict[str, Any] = field(default_factory=dict)
    _sources: dict[str, str] = field(default_factory=dict)
    _intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    def part(self, group: str, why_not: str = "", **values: Fitted | None) -> None:
        """Set values of a group; those that are absent or None stay the base's."""
        self._groups[group] = self._made(getattr(self.base, group), group, values, why_not)

    def entries(self, group: str, given: list[tuple[Part, dict[str, Fitted | None]]]) -> None:
        """Set a list: for each entry a part to begin with, and the values that are known."""
        self._groups[group] = tuple(
            self._made(part, f"{group}[{i + 1}]", values, "")
            for i, (part, values) in enumerate(given)
        )

    def assumed(self, what: str) -> None:
        """Say what is not fitted."""
        self.not_fitted.append(what)

    def _made(self, part: Part, where: str, values: dict[str, Fitted | None], why: str) -> Part:
        changes: dict[str, Any] = {}
        for name in part.__dataclass_fields__:
            key = f"{where}.{name}"
            one = values.get(name)
            if one is None and getattr(part, name) == "":
                continue  # a text that a scenario may leave out
            if one is None:
                self._assume(part, where, name, values, why)
                continue
            number = one.value
            if not isinstance(number, str):
                number = round(number) if isinstance(getattr(part, name), int) else float(number)
            changes[name] = number
            self._sources[key] = f"fitted to {self.origin}: {one.what}"
            if one.low is not None and one.high is not None:
                value = float(changes[name])
                self._intervals[key] = min(float(one.low), value), max(float(one.high), value)
        return replace(part, **changes)

    def _assume(
        self, part: Part, where: str, name: str, values: dict[str, Fitted | None], why: str
    ) -> None:
        """Say of one value that it is not fitted, and whether it is the base's."""
        group, bracket, _ = where.partition("[")
        of_base = not bracket or self._is_of_base(group, part, name, values)
        as_base = f", as in {self.base.name}" if of_base else ""
        self._sources[f"{where}.{name}"] = f"assumed{as_base}"
        if not bracket:
            self.not_fitted.append(f"{where}.{name}" + (f" ({why})" if why else ""))
        elif not any(_names(one, group, name) for one in self.not_fitted):
            self.not_fitted.append(f"{group}.*.{name}")

    def _is_of_base(
        self, group: str, part: Part, name: str, values: dict[str, Fitted | None]
    ) -> bool:
        """Whether the base has that value in an entry that is named alike."""
        key = ENTRY_KEYS[group]
        fitted = values.get(key)
        named = getattr(part, key) if fitted is None else fitted.value
        return any(
            getattr(one, key) == named and getattr(one, name) == getattr(part, name)
            for one in getattr(self.base, group)
        )

    def scenario(self, name: str) -> ClusterScenario:
        """The scenario with all that was set."""
        return replace(
            self.base,
            name=name,
            sources=self._sources,
            intervals=self._intervals,
            validation=None,
            **self._groups,
        )


def _names(line: str, group: str, name: str) -> bool:
    """Whether a line on what is not fitted is of that field of a list, or of the whole list."""
    head = line.partition(" (")[0]
    if not head.startswith(f"{group}."):
        return head == group
    fields = head.removeprefix(f"{group}.").removeprefix("*.").split(", ")
    return name in {one.split(" ")[0] for one in fields}
