"""Chains of jobs that their owner made with `--dependency`: each waits for the one before it.

The commonest way to train for longer than a time limit is a job that submits its successor, or ten
jobs of one name submitted at once. A chain is one task, although each job of it may COMPLETE.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

import ibis
from ibis.expr.types import Table

from ettr.metrics.instants import fetch, in_utc

# the waits for an end; `after` waits for a beginning and joins nothing
_AFTER_END = ("afterany", "afternotok", "afterok", "aftercorr")
_CONDITION = re.compile(r"\s*([a-z]+)((?::[^:,?()]+)*)(?:\([^)]*\))?\s*")
_ID = re.compile(r"(\d+(?:_\d+)?(?:\+\d+)?)")

JobKey = tuple[str, str]
_Row = Mapping[str, Any]
_Owner = tuple[str, str, str]
# when it was submitted, its id as numbers, the job, and when it ended
_Place = tuple[datetime, tuple[int, ...], JobKey, datetime | None]


@dataclass(frozen=True, slots=True)
class Dependency:
    """What a job waits for: ends of jobs by id, and of whatever has its name (`singleton`)."""

    job_ids: tuple[str, ...]
    is_singleton: bool


def parse_dependency(text: str, job_id: str = "") -> Dependency:
    """What a dependency names, as Slurm writes it.

    Args:
        text: such as `afterany:15:16,afterok:17?singleton`, also with `(unfulfilled)` behind.
        job_id: of the job that waits; a task of an array waits for the same task (`aftercorr`).

    Source:
        man sbatch, --dependency.
    """
    ids: list[str] = []
    is_singleton = False
    for part in re.split(r"[,?]", text):
        found = _CONDITION.fullmatch(part)
        if found is None:
            continue
        kind = found[1]
        is_singleton = is_singleton or kind == "singleton"
        if kind in _AFTER_END:
            named = [each[0] for each in map(_ID.match, found[2].split(":")[1:]) if each]
            task = job_id.partition("_")[2]
            corresponds = kind == "aftercorr" and task.isdigit()
            ids += [f"{each}_{task}" if corresponds else each for each in named]
    return Dependency(tuple(dict.fromkeys(ids)), is_singleton)


def chains(attempts: Table) -> dict[JobKey, JobKey]:
    """Jobs of a chain, each with the chain's first job; cluster and id of both.

    A job continues the one that it waits for where user and name are the same. By `singleton` it
    continues the job of its user and name that was submitted last before it, if that had not ended
    when it was submitted: who submits the next slice only after the last has ended gains nothing
    from the word, and uses it to keep a nightly job from running twice.
    """
    waiting = attempts.filter(attempts.dependency.notnull() & _is_named(attempts))
    columns = ("cluster", "job_id", "user", "name", "submit", "dependency")
    rows = _jobs(fetch(waiting, *columns).to_pylist())
    if not rows:
        return {}
    asked = {key: parse_dependency(row["dependency"], key[1]) for key, row in rows.items()}
    named = _named_jobs(attempts, rows, asked)
    by_owner = _by_owner(named)
    links: dict[JobKey, JobKey] = {}
    for key, one in asked.items():
        before = list(_by_id(key, rows[key], one, named))
        if one.is_singleton:
            before += _by_name(key, rows[key], by_owner)
        if before:
            links[key] = max(before, key=lambda job: named[job]["submit"])
    return _first_of(links)


def _is_named(attempts: Table) -> Any:
    return attempts.user.notnull() & attempts.name.notnull()


def _jobs(rows: Iterable[_Row]) -> dict[JobKey, dict[str, Any]]:
    """One row for each job: its first submission, its last end (None while it is open)."""
    jobs: dict[JobKey, dict[str, Any]] = {}
    for row in rows:
        made = {**row, "submit": in_utc(row["submit"])}
        known = jobs.setdefault((row["cluster"], row["job_id"]), made)
        known["submit"] = min(known["submit"], made["submit"])
        if "end" in row:
            known["end"] = _later(known["end"], row["end"])
    return jobs


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return None if one is None or other is None else max(in_utc(one), in_utc(other))


def _named_jobs(
    attempts: Table, rows: Mapping[JobKey, _Row], asked: Mapping[JobKey, Dependency]
) -> dict[JobKey, dict[str, Any]]:
    """The jobs that others wait for by id, and those that have the name of a singleton."""
    ids = {(key[0], each) for key, one in asked.items() for each in one.job_ids}
    by_id = ibis.memtable(
        {"cluster": [key[0] for key in sorted(ids)], "job_id": [key[1] for key in sorted(ids)]},
        schema={"cluster": "string", "job_id": "string"},
    )
    owners = sorted(
        {
            (key[0], rows[key]["user"], rows[key]["name"])
            for key, o in asked.items()
            if o.is_singleton
        }
    )
    names = ("cluster", "user", "name")
    by_name = ibis.memtable(
        {name: [owner[at] for owner in owners] for at, name in enumerate(names)},
        schema=dict.fromkeys(names, "string"),
    )
    columns = ("cluster", "job_id", "user", "name", "submit", "end")
    found = [
        *fetch(attempts.semi_join(by_id, ["cluster", "job_id"]), *columns).to_pylist(),
        *fetch(attempts.semi_join(by_name, list(names)), *columns).to_pylist(),
    ]
    return _jobs(found)


def _by_id(
    key: JobKey, row: _Row, dependency: Dependency, named: Mapping[JobKey, _Row]
) -> Iterator[JobKey]:
    """Jobs of the same user and name that a job waits for by their ids."""
    for job_id in dependency.job_ids:
        other = named.get((key[0], job_id))
        if other is not None and job_id != key[1] and _owner(key, row) == _owner(key, other):
            yield key[0], job_id


def _owner(key: JobKey, row: _Row) -> _Owner:
    return key[0], row["user"], row["name"]


def _by_owner(named: Mapping[JobKey, _Row]) -> dict[_Owner, list[_Place]]:
    """The jobs of each user and name in the order of their submission, with their ends."""
    found: dict[_Owner, list[_Place]] = defaultdict(list)
    for key, row in named.items():
        found[_owner(key, row)].append((row["submit"], _number(key[1]), key, row["end"]))
    return {owner: sorted(jobs, key=itemgetter(0, 1)) for owner, jobs in found.items()}


def _by_name(key: JobKey, row: _Row, by_owner: Mapping[_Owner, list[_Place]]) -> Iterator[JobKey]:
    """The job of that name submitted last before, where it had not ended when this one was."""
    jobs = by_owner[_owner(key, row)]
    at = bisect_left(jobs, (row["submit"], _number(key[1])), key=itemgetter(0, 1))
    if at:
        _, _, before, end = jobs[at - 1]
        if end is None or in_utc(end) > row["submit"]:
            yield before


def _number(job_id: str) -> tuple[int, ...]:
    """Order of ids: jobs submitted within one second have ids that grow."""
    return tuple(int(digits) for digits in re.findall(r"\d+", job_id))


def _first_of(links: Mapping[JobKey, JobKey]) -> dict[JobKey, JobKey]:
    """Every job of each chain with the first of its chain.

    Where two jobs wait for one, neither continues it: that is a sweep, not a task.
    """
    followers = Counter(links.values())
    kept = {job: before for job, before in links.items() if followers[before] == 1}
    first: dict[JobKey, JobKey] = {}
    for job in kept:
        path = [job]
        while (before := kept.get(path[-1])) is not None and before not in path:
            if before in first:
                before = first[before]
                path.append(before)
                break
            path.append(before)
        first |= dict.fromkeys(path, path[-1])
    return first
