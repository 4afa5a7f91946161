"""Failures without a line: nodes that end the jobs of many users within seconds, and hung runs.

A scheduler gives the next job to the node that is free, so that a broken one that ends each at
once takes all that wait. So users are counted, not jobs: on one node and day, of how many did at
least half of the jobs end early? Each user may be hit with the largest of three shares: her own on
other nodes, that of the partition elsewhere on that day (an outage of what all share is no black
hole), and that of other nodes with twice its spread between nodes. The chance of so many hit users
is that of independent ones, times all nodes and days that were looked at.

A job on several nodes that ends at once accuses them all. Its node is named where those that ran
without it do not end so, and where no other node was in all that ended so: else they share the
blame, and none is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from ettr.defaults import EARLY_S
from ettr.facts import Facts, made
from ettr.metrics.instants import moment
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

LEAST_USERS = 3
LEAST_ENDS = 5
LEAST_SHARE = 0.5
"""Part of the users of the node and day, and of their attempts, that must have been hit."""
LEAST_APART = 3
"""Jobs on several nodes that a node must have ended without another suspect."""
MOST_CHANCE = 0.01
"""Largest chance of one such node and day in all of the logs without any black hole."""
OTHER_NODES = 3
"""Others of the partition that must have run attempts; else all of its days are the others."""
_USERS_PRIOR, _DAYS_PRIOR = 5.0, 2.0
_DAY_US = SECONDS_PER_DAY * MICROSECONDS_PER_SECOND
_ALMOST_ALL = 0.9
Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BlackHole:
    """A node that ended the jobs of many users within seconds of their start.

    Attributes:
        uncounted: Those of them that are no failure by any log.
        elsewhere: Share of attempts on other nodes that end so; None where none ran.
    """

    cluster: str
    node: str
    first: datetime
    last: datetime
    within_s: int
    ended: int
    uncounted: int
    starts: int
    early: int
    users: int
    elsewhere: float | None
    failed_elsewhere: float | None


@made(
    "black_hole_days",
    (
        *(("hole", "BIGINT"), ("cluster", "VARCHAR"), ("node", "VARCHAR")),
        *(("from_us", "BIGINT"), ("to_us", "BIGINT"), ("within_s", "BIGINT")),
    ),
    reads=(
        *("early_days", "user_days_suspect", "user_day_sums"),
        *("shared_suspects", "shared_starts", "shared_users", "node_classes"),
    ),
)
def _black_hole_days(facts: Facts) -> list[tuple[object, ...]]:
    """Nodes, each with days in a row on which it was a black hole."""
    ends: dict[tuple[str, str], dict[int, Counter[int]]] = defaultdict(dict)
    for found in (_of_single_nodes(facts), _of_several_nodes(facts)):
        for (cluster, node, day), within in found.items():
            known = ends[cluster, node].setdefault(day, Counter())
            known.update(within)
    holes: list[tuple[object, ...]] = []
    for (cluster, node), by_day in ends.items():
        for some in _in_a_row(sorted(by_day)):
            within = {one: sum(by_day[day][one] for day in some) for one in EARLY_S}
            least_s = next(s for s in EARLY_S if within[s] >= _ALMOST_ALL * within[EARLY_S[-1]])
            from_us, to_us = some[0] * _DAY_US, (some[-1] + 1) * _DAY_US
            holes.append((len(holes), cluster, node, from_us, to_us, least_s))
    return holes


Ends = dict[tuple[str, str, int], dict[int, int]]
"""By cluster, node and day: how many ended within each of the limits."""


def _of_single_nodes(facts: Facts) -> Ends:
    """Nodes and days on which jobs of one node show a black hole."""
    if not facts.rows("early_days"):
        return {}
    sums = _Sums(facts.rows("user_day_sums"))
    cells: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in facts.rows("user_days_suspect"):
        cells[row["cluster"], row["node"], row["day"]].append(row)
    found: Ends = {}
    for key, rows in sorted(cells.items()):
        tests = len(EARLY_S) * sums.node_days[key[0]]
        if any(_is_hole(rows, sums, within_s, tests) for within_s in EARLY_S):
            found[key] = {one: sum(row[f"within_{one}"] for row in rows) for one in EARLY_S}
    return found


def _in_a_row(days: list[int]) -> list[list[int]]:
    found = [[days[0]]]
    for day in days[1:]:
        if day == found[-1][-1] + 1:
            found[-1].append(day)
        else:
            found.append([day])
    return found


def _of_several_nodes(facts: Facts) -> Ends:
    """Nodes and days on which jobs of several nodes show one black hole, and no other node."""
    if not facts.rows("shared_suspects"):
        return {}
    users: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in facts.rows("shared_users"):
        users[row["cluster"]][row["user"]] = row
    n_nodes = Counter(cluster for cluster, _ in facts.distinct("node_classes", "cluster", "node"))
    days: dict[tuple[str, int], _Day] = defaultdict(lambda: _Day({}, defaultdict(set)))
    for row in facts.rows("shared_starts"):
        day = days[row["cluster"], row["day"]]
        day.began[row["attempt_id"]] = row
        if row["node"] is not None:
            day.on[row["node"]].add(row["attempt_id"])
    found: Ends = {}
    for (cluster, number), day in days.items():
        of_all = users[cluster].values()
        length = max(u["last_day"] for u in of_all) - min(u["first_day"] for u in of_all) + 1
        tests = len(EARLY_S) * n_nodes[cluster] * length
        for within_s in EARLY_S:
            early = {
                node: {name for name in held if day.is_early(name, within_s)}
                for node, held in day.on.items()
                if _ends_several(day, held, users[cluster], within_s, tests)
            }
            for node, ended in early.items():
                # what another was in as well may be its own
                rivals = (other for name, other in early.items() if name != node)
                if any(len(ended - other) < LEAST_APART for other in rivals):
                    continue
                found[cluster, node, number] = {
                    one: sum(day.is_early(name, one) for name in day.on[node]) for one in EARLY_S
                }
    return found


@dataclass(frozen=True, slots=True)
class _Day:
    """Attempts on several nodes that began on a day, and those on each suspect."""

    began: dict[str, Row]
    on: dict[str, set[str]]

    def is_early(self, name: str, within_s: int) -> bool:
        return bool(self.began[name]["failed"] and self.began[name]["elapsed_s"] <= within_s)

    def by_user(self, names: Iterable[str], within_s: int) -> dict[str, tuple[int, int]]:
        """Attempts of each user, and how many of them ended early."""
        counts: dict[str, tuple[int, int]] = {}
        for name in names:
            user = self.began[name]["user"]
            starts, early = counts.get(user, (0, 0))
            counts[user] = starts + 1, early + self.is_early(name, within_s)
        return counts


def _ends_several(
    day: _Day, held: set[str], users: Mapping[str, Row], within_s: int, tests: int
) -> bool:
    """Whether chance explains how many users were hit on a node, by those that ran without it."""
    here = day.by_user(held, within_s)
    hit = {user for user, (starts, early) in here.items() if 2 * early >= starts}
    starts, early = (sum(count[place] for count in here.values()) for place in (0, 1))
    if len(hit) < LEAST_USERS or early < LEAST_ENDS:
        return False
    if len(hit) < LEAST_SHARE * len(here) or early < LEAST_SHARE * starts:
        return False
    whole = day.by_user(day.began, within_s)
    # of each user: days without this one, and those that were hit
    left = {
        user: (row["n"] - (user in whole), row[f"hit_{within_s}"] - _is_hit(whole.get(user)))
        for user, row in users.items()
    }
    n, hits = (sum(counts[place] for counts in left.values()) for place in (0, 1))
    elsewhere = (hits + 0.5) / (n + 1)
    without = day.by_user(day.began.keys() - held, within_s)
    then = (sum(map(_is_hit, without.values())) + _DAYS_PRIOR * elsewhere) / (
        len(without) + _DAYS_PRIOR
    )
    shares = [
        max(elsewhere, then, (own_hits + _USERS_PRIOR * elsewhere) / (own + _USERS_PRIOR))
        for own, own_hits in (left[user] for user in here)
    ]
    return at_least(len(hit), np.array(shares)) * tests < MOST_CHANCE


def _is_hit(counts: tuple[int, int] | None) -> bool:
    return counts is not None and 2 * counts[1] >= counts[0]


class _Sums:
    """User-days, and those on which the user was hit, by node, by day and by user."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.of_nodes: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
        self.of_days: dict[tuple[str, str, int], Row] = {}
        self.of_users: dict[tuple[str, str], Row] = {}
        self.node_days: dict[str, int] = defaultdict(int)
        self._sums: dict[tuple[str, str, str], Floats] = {}
        for row in rows:
            cluster, partition = row["cluster"], row["partition"]
            if row["kind"] == "node":
                self.of_nodes[cluster, partition][row["node"]] = row
                self.node_days[cluster] += row["days"]
            elif row["kind"] == "day":
                self.of_days[cluster, partition, row["day"]] = row
            else:
                self.of_users[cluster, row["user"]] = row

    def share_elsewhere(self, cluster: str, partition: str, node: str, hit: str) -> float:
        """Share of user-days that are hit on other nodes, with twice its spread between them."""
        of_all = self.of_nodes[cluster, partition]
        moments = self._moments(cluster, partition, hit)
        if len(of_all) > OTHER_NODES:
            moments = moments - _moments_of([of_all[node]], hit)
        n, hits, n_squared, hits_squared, product = moments
        share = (hits + 0.5) / (n + 1)
        # beyond what a binomial law has by itself; nodes with more user-days say more
        beyond = hits_squared - 2 * share * product + share**2 * n_squared
        beyond -= n * share * (1 - share)
        spread = np.sqrt(max(beyond, 0.0) / (n_squared - n)) if n_squared > n else 0.0
        return float(min(share + 2 * spread, 1.0))

    def _moments(self, cluster: str, partition: str, hit: str) -> Floats:
        key = cluster, partition, hit
        if key not in self._sums:
            self._sums[key] = _moments_of(self.of_nodes[cluster, partition].values(), hit)
        return self._sums[key]


def _moments_of(rows: Iterable[Row], hit: str) -> Floats:
    """Sums over nodes of user-days, of hit ones, of the squares of both, and of their product."""
    n, hits = np.array([(row["n"], row[hit]) for row in rows], dtype=np.float64).T
    return np.array([n.sum(), hits.sum(), (n * n).sum(), (hits * hits).sum(), (n * hits).sum()])


def _is_hole(rows: list[Row], sums: _Sums, within_s: int, tests: int) -> bool:
    """Whether chance explains how many users were hit on one node and day."""
    hit, early = f"hit_{within_s}", f"within_{within_s}"
    hits, ends = sum(row[hit] for row in rows), sum(row[early] for row in rows)
    starts = sum(row["starts"] for row in rows)
    if hits < LEAST_USERS or ends < LEAST_ENDS:
        return False
    if hits < LEAST_SHARE * len(rows) or ends < LEAST_SHARE * starts:
        return False
    shares = np.array([_share(row, rows, sums, hit) for row in rows])
    return at_least(hits, shares) * tests < MOST_CHANCE


def _share(row: Row, rows: list[Row], sums: _Sums, hit: str) -> float:
    """Share with which a user is hit on an ordinary node that day."""
    cluster, partition, node = row["cluster"], row["partition"], row["node"]
    elsewhere = sums.share_elsewhere(cluster, partition, node, hit)
    user, day = sums.of_users[cluster, row["user"]], sums.of_days[cluster, partition, row["day"]]
    hers, own = user[hit] - row[f"user_{hit}"], user["n"] - row["user_n"]
    here = [one for one in rows if one["partition"] == partition]
    then = day[hit] - sum(one[hit] for one in here)
    return float(
        max(
            elsewhere,
            (hers + _USERS_PRIOR * elsewhere) / (own + _USERS_PRIOR),
            (then + _DAYS_PRIOR * elsewhere) / (day["n"] - len(here) + _DAYS_PRIOR),
        )
    )


def at_least(hits: int, shares: Floats) -> float:
    """Chance of so many hits or more, each independent with its own share."""
    law = np.array([1.0])
    for share in shares:
        law = np.convolve(law, [1 - share, share])
    return float(law[hits:].sum())


def black_holes(facts: Facts) -> tuple[BlackHole, ...]:
    """The black holes that ended any of the selected attempts, in order of time.

    They are found in all of the logs, whatever is selected.
    """
    if not facts.rows("black_hole_days"):
        return ()
    began: dict[int, list[Row]] = defaultdict(list)
    for row in facts.rows("black_hole_starts"):
        began[row["hole"]].append(row)
    ended: dict[int, list[Row]] = defaultdict(list)
    for row in facts.rows("black_hole_ends"):
        ended[row["hole"]].append(row)
    is_single = bool(facts.rows("early_days"))
    days = facts.rows("user_day_sums") if is_single else ()
    sums = [row for row in days if row["kind"] == "node"]
    shared = facts.rows("shared_users")
    found = []
    for hole, own in ended.items():
        rows = began[hole]
        early = [row for row in rows if row["early"]]
        one = rows[0]
        others = [
            *(
                row
                for row in sums
                if row["cluster"] == one["cluster"] and row["node"] != one["node"]
            ),
            *(row for row in shared if row["cluster"] == one["cluster"]),
            _without(rows, one["within_s"]),
        ]
        found.append(
            BlackHole(
                cluster=one["cluster"],
                node=one["node"],
                first=moment(min(row["start_us"] for row in early)),
                last=moment(max(row["end_us"] for row in early)),
                within_s=one["within_s"],
                ended=len(own),
                uncounted=sum(not row["counted"] for row in own),
                starts=len(rows),
                early=len(early),
                users=len({row["user"] for row in early}),
                elsewhere=_of_starts(others, f"within_{one['within_s']}"),
                failed_elsewhere=_of_starts(others, "failed"),
            )
        )
    return tuple(sorted(found, key=lambda one: (one.first, one.cluster, one.node)))


def _without(rows: Iterable[Row], within_s: int) -> Row:
    """What began on a node on several nodes, to be taken off those of all users."""
    several = [row for row in rows if row["n_nodes"] is not None and row["n_nodes"] > 1]
    early = sum(bool(row["early"]) for row in several)
    return {"starts": -len(several), "failed": -early, f"within_{within_s}": -early}


def _of_starts(rows: list[Row], name: str) -> float | None:
    starts = sum(row["starts"] for row in rows)
    return sum(row[name] for row in rows) / starts if starts else None


def owed_to_holes(facts: Facts) -> dict[str, tuple[tuple[str, str], float]]:
    """By selected attempt that a black hole ended: its node, and the chance that it was the node's.

    As many as elsewhere would have ended early on any node. What is a failure already is left out.
    """
    own = {
        (one.cluster, one.node): 1.0 - min((one.elsewhere or 0.0) * one.starts / one.early, 1.0)
        for one in black_holes(facts)
    }
    rows = facts.rows("black_hole_ends") if own else ()
    return {
        row["attempt_id"]: ((row["cluster"], row["node"]), own[row["cluster"], row["node"]])
        for row in rows
        if not row["counted"]
    }


# -- Runs that probably hung: cancelled or timed out after a fault on a node that was then drained
#
# The end of such a run leaves no word of a failure: its owner or the time limit ended it. Where
# steps of its training are recorded up to the end it did not hang, and is left out.


@dataclass(frozen=True, slots=True)
class HungRun:
    """A run that was ended hours after it probably failed.

    Attributes:
        n_gpus: That it held; None where the log has none.
        gpu_hours: That it held from the fault on; None likewise.
    """

    cluster: str
    job_id: str
    attempt_id: str
    state: str
    node: str
    symptom: str
    fault: datetime
    end: datetime
    n_gpus: int | None
    gpu_hours: float | None
    is_sure: bool


def hung_runs(facts: Facts) -> tuple[HungRun, ...]:
    """The selected runs that probably hung, in order of their ends."""
    rows = sorted(facts.rows("hung_runs"), key=lambda row: (row["end_us"], row["attempt_id"]))
    return tuple(
        HungRun(
            cluster=row["cluster"],
            job_id=row["job_id"],
            attempt_id=row["attempt_id"],
            state=row["state"],
            node=row["node"],
            symptom=row["symptom"],
            fault=moment(row["fault_us"]),
            end=moment(row["end_us"]),
            n_gpus=row["n_gpus"],
            gpu_hours=None
            if row["n_gpus"] is None
            else row["n_gpus"]
            * (row["end_us"] - row["fault_us"])
            / MICROSECONDS_PER_SECOND
            / SECONDS_PER_HOUR,
            is_sure=row["last_step_us"] is not None,
        )
        for row in rows
    )
