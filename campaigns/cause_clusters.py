"""Simulated clusters with planted causes of interruptions, for the campaign `causes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from campaigns.cause_families import Family
from ettr.attribution.hazards import (
    BY_OPERATOR,
    CAUSES,
    FAILED,
    NODE_FAILED,
    CauseDomain,
    Coincidences,
    Interruptions,
    coincidences,
    ends_by_age,
    evidence_table,
    outage_signs,
)
from ettr.attribution.shared_bursts import burst_odds
from ettr.taxonomy import Symptom, load_taxonomy
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

DAYS, PROGRAMS, ARRAY, RESTARTED = 60.0, 3, 30, 0.15
PERIOD_S = DAYS * SECONDS_PER_DAY
SYMPTOMS = {
    CauseDomain.NODE: ("gpu-unavailable", "gpu-memory", "pcie", "nvlink"),
    CauseDomain.SHARED: ("infiniband", "filesystem"),
    CauseDomain.SYSTEM: ("gpu-driver", "filesystem", "system-services"),
}
EVERY_SYMPTOM = tuple(sorted({one for some in SYMPTOMS.values() for one in some}))


@dataclass(frozen=True, slots=True)
class Cluster:
    """One simulated cluster: what the model sees, the planted causes, and which ends are one event:
    those of one burst."""

    given: Interruptions
    truth: np.ndarray
    event: np.ndarray


@dataclass(frozen=True, slots=True)
class _Attempts:
    """Attempts as they ended: cause -1 where nothing ended them; times in days."""

    program: np.ndarray
    size: np.ndarray
    first: np.ndarray
    start: np.ndarray
    length: np.ndarray
    cause: np.ndarray
    culprit: np.ndarray


@cache
def known_symptoms() -> Mapping[str, Symptom]:
    """The symptoms of the package's taxonomy."""
    return load_taxonomy().symptoms


def draw(family: Family, rng: np.random.Generator) -> Cluster:
    """Attempts with planted ends; those that nothing ends are exposure alone."""
    ran = _ends(family, rng)
    ended = np.flatnonzero(ran.cause >= 0)
    ended = ended[np.argsort((ran.start + ran.length)[ended], kind="stable")]
    evidence, named = _signs(family, ran, ended, rng)
    kinds = sorted(set(evidence))
    pair_of = np.repeat(np.arange(len(ended)), ran.size[ended])
    pair_node = _on_nodes(family, ran.first[ended], ran.size[ended])
    every = _on_nodes(family, ran.first, ran.size)
    switches: dict[str, list[int]] = {}
    for of, switch in {*zip(pair_of.tolist(), (pair_node // family.switch).tolist(), strict=True)}:
        switches.setdefault(str(switch), []).append(of)
    places = {"switch": switches, "cluster": {"all": list(range(len(ended)))}}
    program, when = ran.program[ended], (ran.start + ran.length)[ended]
    seen = np.array([kinds.index(one) for one in evidence])
    prior = evidence_table(kinds, known_symptoms(), family.symptom > 0)
    times_s, users = SECONDS_PER_DAY * when, program // PROGRAMS
    given = Interruptions(
        evidence=seen,
        kinds=tuple(kinds),
        program=program,
        user=np.arange(family.users * PROGRAMS) // PROGRAMS,
        program_runs=np.bincount(ran.program, minlength=family.users * PROGRAMS).astype(float),
        pair_of=pair_of,
        pair_node=pair_node,
        pair_days=ran.length[ended][pair_of],
        pair_named=named[pair_of] == pair_node,
        node_days=np.bincount(every, np.repeat(ran.length, ran.size), family.nodes).astype(float),
        node_runs=np.bincount(every, minlength=family.nodes).astype(float),
        burst_odds=burst_odds(times_s, users, outage_signs(seen, prior), places, PERIOD_S),
        day=when.astype(int),
        days=int(DAYS) + 7,
        by_chance=_coincidences(family, ran, rng),
        ended=ends_by_age(ran.length),
    )
    return Cluster(given, ran.cause[ended], _events(times_s, given.burst_odds))


def _events(times_s: np.ndarray, odds: np.ndarray) -> np.ndarray:
    """A number for each end; the ends of a burst, none an hour from the next, have the same."""
    event = np.arange(len(times_s))
    burst = np.flatnonzero(odds.sum(axis=0) > 1)
    if burst.size:
        apart = np.append(True, np.diff(times_s[burst]) > SECONDS_PER_HOUR)
        event[burst] = burst[apart][np.cumsum(apart) - 1]
    return event


def _ends(family: Family, rng: np.random.Generator) -> _Attempts:
    n, programs = family.attempts, family.users * PROGRAMS
    program = rng.choice(programs, n, p=rng.dirichlet(np.full(programs, 0.4)))
    if family.crash is None:
        crash = np.where(rng.random(programs) < 0.05, 0.9, 0.02)
    else:
        crash = rng.beta(*family.crash, programs)
    start = rng.uniform(0, DAYS, n)
    length = np.minimum(rng.lognormal(family.length, 1.2, n), 6.0)
    size = rng.choice(family.sizes, n)
    first = rng.integers(0, family.nodes, n)
    at_once = _arrays(family, rng, program, start, length, size)
    node = _on_nodes(family, first, size)
    fails = rng.exponential(1 / _rates(family, rng)[node])
    begins = np.cumsum(size) - size
    ends = np.full((n, 6), np.inf)
    ends[:, 0] = length
    crashes = rng.random(n) < crash[program]
    ends[crashes, 4] = (length * rng.beta(0.5, 2, n))[crashes]
    ends[:, 4] = np.minimum(ends[:, 4], at_once)
    ends[:, 1] = np.minimum.reduceat(fails, begins)
    ends[:, 2] = _outages(family, start, first, size, rng)
    ends[:, 3] = _software(family, start, size, rng)
    cancelled = rng.random(n) < 0.01
    ends[cancelled, 5] = (length * rng.random(n))[cancelled]
    cause = ends.argmin(axis=1) - 1
    earliest = np.flatnonzero(fails == np.repeat(ends[:, 1], size))
    _, of_attempt = np.unique(np.repeat(np.arange(n), size)[earliest], return_index=True)
    return _Attempts(
        program,
        size,
        first,
        start,
        ends.min(axis=1),
        cause,
        np.where(cause == 0, node[earliest[of_attempt]], -1),
    )


def _arrays(
    family: Family,
    rng: np.random.Generator,
    program: np.ndarray,
    start: np.ndarray,
    length: np.ndarray,
    size: np.ndarray,
) -> np.ndarray:
    """Makes the first attempts jobs of arrays; days from the start until an array crashes."""
    crash = np.full(len(start), np.inf)
    for number in range(family.arrays):
        part = slice(number * ARRAY, (number + 1) * ARRAY)
        begin = rng.uniform(0, DAYS)
        program[part] = rng.integers(0, family.users * PROGRAMS)
        start[part] = begin + rng.uniform(0, 0.007, ARRAY)
        length[part], size[part] = 1.0, 1
        crash[part] = begin + 0.03 + rng.uniform(0, 0.0007, ARRAY) - start[part]
    return crash


def _rates(family: Family, rng: np.random.Generator) -> np.ndarray:
    laws: dict[str, Callable[[], np.ndarray]] = {
        "weibull": lambda: rng.weibull(0.7, family.nodes),
        "lognormal": lambda: rng.lognormal(-1.0, 1.5, family.nodes),
        "equal": lambda: np.ones(family.nodes),
    }
    rate = family.node_rate * laws[family.node_law]()
    rate[rng.choice(family.nodes, family.lemons, replace=False)] = 0.2
    return rate


def _outages(
    family: Family,
    start: np.ndarray,
    first: np.ndarray,
    size: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Days from the start until an outage ends each attempt; infinite where none does."""
    ends = np.full(len(start), np.inf)
    for when in rng.uniform(0, DAYS, family.outages):
        switch = rng.integers(0, family.nodes // family.switch)
        last = first + size - 1
        on_it = (first // family.switch <= switch) & (switch <= last // family.switch)
        on_it |= switch <= (last - family.nodes) // family.switch
        hit = (on_it | family.wide) & (start < when) & (rng.random(len(start)) < family.hit)
        delay = rng.uniform(0, family.outage_days, len(start))
        ends = np.where(hit, np.minimum(ends, when + delay - start), ends)
    return ends


def _software(
    family: Family, start: np.ndarray, size: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The same of system software, whose hazard goes with the nodes of an attempt."""
    ends = np.full(len(start), np.inf)
    if family.software == "none":
        return ends
    if family.software == "steady":
        return rng.exponential(1 / (0.001 * size))
    if family.software == "restarts":
        for when in rng.uniform(0, DAYS, 5):
            hit = (start < when) & (rng.random(len(start)) < RESTARTED)
            end = when + rng.uniform(0, 0.007, len(start))
            ends = np.where(hit, np.minimum(ends, end - start), ends)
        return ends
    if family.software == "days":
        spells, length, hazard = rng.choice(int(DAYS), 4, replace=False).astype(float), 1.0, 0.03
    else:
        spells, length, hazard = rng.uniform(0, DAYS - 10, 1), 10.0, 0.008
    for spell in spells:
        begin = np.maximum(start, spell)
        wait = rng.exponential(1 / (hazard * size))
        ends = np.where(begin + wait < spell + length, np.minimum(ends, begin + wait - start), ends)
    return ends


def _on_nodes(family: Family, first: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The nodes of attempts, one attempt after the other."""
    places = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    nodes: np.ndarray = (np.repeat(first, size) + places) % family.nodes
    return nodes


def _chance(family: Family, size: np.ndarray) -> np.ndarray:
    """How often attempts show a symptom by coincidence."""
    nodes = size if family.per_node else np.ones(len(size))
    none: np.ndarray = (1 - family.chance) ** nodes
    return 1 - none


def _coincidences(family: Family, ran: _Attempts, rng: np.random.Generator) -> Coincidences:
    """What a store shows of coincidences: symptoms around the ends of attempts that completed."""
    completed = ran.size[ran.cause < 0]
    met = rng.random(len(completed)) < _chance(family, completed)
    by_kind = rng.multinomial(met.sum(), np.full(len(EVERY_SYMPTOM), 1 / len(EVERY_SYMPTOM)))
    nodes, attempts = np.unique(completed, return_counts=True)
    return coincidences(
        nodes.astype(float),
        attempts.astype(float),
        np.array([met[completed == one].sum() for one in nodes], dtype=float),
        dict(zip(EVERY_SYMPTOM, by_kind.tolist(), strict=True)),
    )


def _signs(
    family: Family, ran: _Attempts, ended: np.ndarray, rng: np.random.Generator
) -> tuple[list[str], np.ndarray]:
    """What is seen of each end, and the node that a log names (-1: none)."""
    evidence, named = [], np.full(len(ended), -1)
    by_chance = rng.random(len(ended)) < _chance(family, ran.size[ended])
    for of, at in enumerate(ended.tolist()):
        cause = CAUSES[ran.cause[at]]
        names = cause is CauseDomain.NODE and rng.random() < family.named
        names |= cause is CauseDomain.SHARED and rng.random() < family.named / 2
        # a coincidence is seen on one node, which a log then names as often
        names |= cause is CauseDomain.USER and bool(by_chance[of]) and rng.random() < family.named
        kind = _sign(family, cause, names, bool(by_chance[of]), rng)
        if names or (kind in EVERY_SYMPTOM and ran.size[at] == 1):
            nodes = _on_nodes(family, ran.first[[at]], ran.size[[at]])
            named[of] = ran.culprit[at] if cause is CauseDomain.NODE else rng.choice(nodes)
        evidence.append(kind)
    return evidence, named


def _sign(
    family: Family, cause: CauseDomain, names: bool, by_chance: bool, rng: np.random.Generator
) -> str:
    if cause is CauseDomain.OPERATOR:
        return BY_OPERATOR
    if cause is CauseDomain.USER:
        return str(rng.choice(EVERY_SYMPTOM)) if by_chance else FAILED
    if rng.random() < family.symptom:
        own = SYMPTOMS[cause] if rng.random() < 0.95 else EVERY_SYMPTOM
        return str(rng.choice(own))
    if names or rng.random() < 0.5:
        return NODE_FAILED
    return str(rng.choice(EVERY_SYMPTOM)) if by_chance else FAILED
