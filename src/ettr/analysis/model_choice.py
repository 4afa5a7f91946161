"""Failure models chosen by name, fitted to what each of them needs of a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.fleet_evidence import FleetEvidence
from ettr.analysis.node_faults import fault_tables
from ettr.errors import UsageError
from ettr.facts import Facts
from ettr.facts.chosen import facts_of_jobs
from ettr.models.base import Fit
from ettr.models.data import Floats, Lifetimes
from ettr.models.registry import (
    CALENDAR_MODELS,
    COUNT_MODELS,
    LAWS_OF_AGE,
    MODELS,
    count_model,
    law_of_age,
)
from ettr.projection.scale import RepairLaw, fit_at_ages, fit_since_last_step
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

if TYPE_CHECKING:
    import pyarrow as pa

    from ettr.models.from_tables import ModelData

CLOCKS = ("use", "age")
_REPAIR_OF = {"use": RepairLaw.GOOD_AS_NEW, "age": RepairLaw.MINIMAL}
_MOMENT_S = 1e-3


@dataclass(frozen=True, slots=True)
class ChosenModels:
    """Fits in the order asked for, the first one preferred."""

    fits: tuple[Fit, ...]
    ages_days: tuple[float, float] | None
    oldest_days: float | None
    notes: tuple[str, ...]
    repair_law: RepairLaw = RepairLaw.GOOD_AS_NEW


class StoredSpans:
    """Failures and use of a store's jobs, as models of time need them; without jobs, of its nodes.

    Each is read when a model asks for it.
    """

    def __init__(self, analysis: Analysis, above_gpus: int | None) -> None:
        self._analysis = analysis
        self._above_gpus = above_gpus

    @cached_property
    def _ended_and_used(self) -> tuple[pa.Table, pa.Table]:
        if not self._analysis.logs_read.jobs:
            return fault_tables(self._analysis.given)
        facts = facts_of_jobs(self._analysis.facts, above_gpus=self._above_gpus)
        return _ended(facts), _held(facts)

    def observed(self) -> ModelData:
        """Lives of the nodes that are named."""
        import pyarrow.compute as pc

        from ettr.models.from_tables import from_tables

        ended, used = self._ended_and_used
        named = used.filter(pc.is_valid(used["node"]))
        return from_tables(ended, named, _nodes(self._analysis.facts))

    def calendar(self) -> tuple[Lifetimes, datetime]:
        """Use of all nodes on one clock from the first start, and when that was."""
        return _calendar(*self._ended_and_used)


def _held(facts: Facts) -> pa.Table:
    """What ran on each node: `node`, with its cluster, `start`, `elapsed_s` and `n_nodes`."""
    import pyarrow as pa

    held = facts.arrow("held_spans")
    start = held["start_us"].cast(pa.timestamp("us", tz="UTC"))
    return held.drop_columns(["start_us"]).append_column("start", start)


def _ended(facts: Facts) -> pa.Table:
    """Failures: `end`, `node`, with its cluster, and `symptom`."""
    import pyarrow as pa

    rows = facts.rows("failures")
    return pa.table(
        {
            "end": pa.array([row["end_us"] for row in rows], pa.timestamp("us", tz="UTC")),
            "node": pa.array([_with_cluster(row) for row in rows], pa.string()),
            "symptom": pa.array([row["symptom"] for row in rows], pa.string()),
        }
    )


def _nodes(facts: Facts) -> pa.Table:
    """The inventory: `node`, with its cluster, and `in_service_from`."""
    import pyarrow as pa

    rows, moment = facts.rows("nodes"), pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "node": pa.array([_with_cluster(row) for row in rows], pa.string()),
            "in_service_from": pa.array([row["in_service_from_us"] for row in rows], moment),
        }
    )


def _with_cluster(row: Mapping[str, Any]) -> str | None:
    """The name of a node that holds over several clusters."""
    return None if row["node"] is None else f"{row['cluster']}/{row['node']}"


def _calendar(failures: pa.Table, exposed: pa.Table) -> tuple[Lifetimes, datetime]:
    n_nodes = exposed["n_nodes"].to_numpy(zero_copy_only=False)
    start = np.repeat(_seconds(exposed["start"]), n_nodes)
    used = exposed["elapsed_s"].to_numpy(zero_copy_only=False).astype(np.float64)
    used = np.repeat(used, n_nodes)
    kept = np.flatnonzero(used > 0)
    # engines give rows in any order, and a sum depends on it in its last digit
    kept = kept[np.lexsort((used[kept], start[kept]))]
    start, used = start[kept], used[kept]
    origin = float(start.min())
    begins, ends = start - origin, start - origin + used
    struck = np.clip(_seconds(failures["end"]) - origin, _MOMENT_S, float(ends.max()))
    # a failure is a moment of its own, so that those which blame no node count too
    return (
        Lifetimes(
            np.concatenate([ends, struck]),
            np.arange(ends.size + struck.size) >= ends.size,
            np.concatenate([begins, struck - _MOMENT_S]),
        ),
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=origin),
    )


def _seconds(column: pa.ChunkedArray) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)
    result: Floats = micros.astype(np.float64) / MICROSECONDS_PER_SECOND
    return result


def choose_models(
    names: Sequence[str],
    evidence: FleetEvidence,
    spans: StoredSpans | None,
    *,
    ages_days: tuple[float, float] | None,
    clock: str,
    confidence: float,
    repair_law: RepairLaw | None = None,
) -> ChosenModels:
    """The models of those names fitted to a fleet.

    Args:
        clock: `use` since a node's last failure, or `age` since it entered service.
        repair_law: what a repair does to that clock; where None, what the clock means: a failure
            sets the time since the last one back, and leaves the age in service as it is.

    Raises:
        UsageError: a name is unknown, or a model does not apply to what there is.
    """
    _check(names, evidence, spans, ages_days, clock)
    fits: list[Fit] = []
    notes: list[str] = []
    oldest: float | None = None
    repair = repair_law or _REPAIR_OF[clock]
    for name in dict.fromkeys(names):
        if name in COUNT_MODELS:
            fits.append(count_model(name).fit(evidence.counts, confidence))
        elif name in CALENDAR_MODELS and spans is not None:
            data, origin = spans.calendar()
            fit, step_days = fit_since_last_step(data, confidence)
            fits.append(fit)
            notes.append(_since(fit, origin, step_days))
        elif spans is not None and ages_days is not None:
            law, lifetimes = law_of_age(name), _lifetimes(spans.observed(), clock, name)
            fits.append(fit_at_ages(law, lifetimes, ages_days, evidence.rate, confidence, repair))
            oldest = float(lifetimes.duration_s.max()) / SECONDS_PER_DAY
            notes.append(f"{fits[-1].meaning} {_clock_words(clock)} Repairs: {repair.value}.")
    return ChosenModels(tuple(fits), ages_days, oldest, tuple(dict.fromkeys(notes)), repair)


def _check(
    names: Sequence[str],
    evidence: FleetEvidence,
    spans: StoredSpans | None,
    ages_days: tuple[float, float] | None,
    clock: str,
) -> None:
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        raise UsageError(f"--model {unknown[0]}: there is no such model; give {', '.join(MODELS)}")
    if clock not in CLOCKS:
        raise UsageError(f"--clock {clock}: give {' or '.join(CLOCKS)}")
    aged = [name for name in names if name in LAWS_OF_AGE]
    of_time = [name for name in names if name not in COUNT_MODELS]
    if of_time and spans is None:
        raise UsageError(
            f"--model {of_time[0]}: typed failures and node-days do not say when nodes failed; "
            "give a STORE, or --model constant"
        )
    if aged and ages_days is None:
        raise UsageError(
            f"--model {aged[0]}: differs from a constant rate only by the clock of the nodes; give "
            "--ages FROM,TO, such as 0d,90d"
        )
    if (ages_days is not None or clock != CLOCKS[0]) and not aged:
        raise UsageError(
            "--ages and --clock: only a law of age asks for them; add --model weibull or "
            "--model lognormal"
        )
    counts = evidence.counts
    for name in names:
        if name in COUNT_MODELS and counts.failures.size < count_model(name).least_units:
            raise UsageError(
                f"--model {name}: is about the spread between nodes, and there is only one "
                f"{counts.unit}; give a STORE of several nodes, or --model constant"
            )


def _lifetimes(observed: ModelData, clock: str, name: str) -> Lifetimes:
    found = observed.by_age if clock == "age" else observed.since_failure
    if found is None and clock == "age":
        raise UsageError(
            f"--model {name} --clock age: no node of the store has a service date; ingest the "
            "table `nodes` with in_service_from (ettr ingest STORE nodes.csv --table nodes), or "
            "use --clock use"
        )
    if found is None:
        raise UsageError(f"--model {name}: no node was ever in use; give another store")
    return found


def _clock_words(clock: str) -> str:
    return (
        "The clock is the age of a node since it entered service."
        if clock == "age"
        else "The clock is a node's time in use since its last failure, or since it was first seen."
    )


def _since(fit: Fit, origin: datetime, step_days: float) -> str:
    failures = fit.rate.failures
    seen = (
        f"{failures:,} failure{'' if failures == 1 else 's'} in {fit.rate.node_days:,.0f} node-days"
    )
    if not step_days:
        return (
            f"{fit.model}: {fit.meaning} All of the time counts, {seen}; a step too small to be "
            "shown is not in the band."
        )
    at = origin + timedelta(days=step_days)
    return (
        f"{fit.model}: the rate last stepped at {at:%Y-%m-%d %H:%M} UTC. Only the time since then "
        f"counts, {seen}, and the rate is assumed to stay. The band takes that step as certain."
    )
