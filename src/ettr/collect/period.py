"""Where a collection begins: behind what a store knows, less an overlap."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ettr.errors import UsageError
from ettr.facts.opening import facts_of_store
from ettr.store import Store
from ettr.store.local_copy import on_duckdb
from ettr.units import MICROSECONDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class CollectPeriod:
    """From when until when, in UTC, and why from then."""

    since: datetime
    until: datetime
    basis: str


def period_after(
    store: Store, name: str, until: datetime, overlap: timedelta, cluster: str | None = None
) -> CollectPeriod:
    """From the last time of the store's accounting, less an overlap.

    sacct shows each job that ran at any time of a period, so that jobs which were running at the
    last time are shown again, with their ends; the overlap is for records that slurmdbd got late.

    Raises:
        UsageError: the store has no attempt (of that cluster), attempts of several clusters, or
            one that lies in the future.
    """
    last = _last_times(store)
    if cluster is None and len(last) > 1:
        raise UsageError(
            f"{name}: has the clusters {', '.join(sorted(last))}, each with a last time of its "
            "own; say which with --cluster"
        )
    chosen = last.get(cluster) if cluster is not None else next(iter(last.values()), None)
    if chosen is None:
        of_cluster = "" if cluster is None else f" of the cluster {cluster}"
        raise UsageError(
            f"{name}: has no accounting{of_cluster} yet; say with --since from when on to collect"
        )
    if chosen > until:
        raise UsageError(
            f"{name}: has an attempt at {_utc(chosen)}, which is after the end of the period, "
            f"{_utc(until)}; say with --since from when on to collect"
        )
    basis = f"{_utc(chosen)}, the last time of the accounting in {name}, less the overlap"
    return CollectPeriod(chosen - overlap, until, basis)


def _last_times(store: Store) -> dict[str, datetime]:
    """The latest time of an attempt, by cluster."""
    found: dict[str, datetime] = {}
    for row in facts_of_store(on_duckdb(store)).rows("last_times"):
        times_us = [
            row[name] for name in ("submit_us", "start_us", "end_us") if row[name] is not None
        ]
        if times_us:
            seconds = max(times_us) // int(MICROSECONDS_PER_SECOND)
            found[row["cluster"]] = datetime.fromtimestamp(seconds, UTC)
    return found


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
