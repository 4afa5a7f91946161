"""What a store's logs say of jobs and faults, made into what a simulation can replay."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.calibration.fit_faults import faults_with_effects, named_symptoms
from ettr.analysis.calibration.record import (
    OWN_ENDS,
    Attempts,
    Flags,
    Places,
    SiteRecord,
    check_one_cluster,
    machine_of,
    recorded_attempts,
    site_record,
    whole_sizes,
    work_of,
)
from ettr.analysis.node_faults import faults_of
from ettr.errors import UsageError
from ettr.metrics.instants import Floats, to_seconds
from ettr.sim.cluster.scenario import ClusterScenario, Owners
from ettr.sim.cluster.scenario_parts import SimulatedPeriod
from ettr.sim.cluster.workload import (
    COMPLETED,
    STATES,
    TIMEOUT,
    Replay,
    ReplayedFault,
    ReplayedJob,
    with_writes_s,
)
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

_NO_QOS = "none"
_NOBODY = "unknown"
_LATER = "came after the end of what is simulated"


@dataclass(frozen=True, slots=True)
class _Span:
    """The time of the logs: from a midnight UTC to their end, in seconds since 1970."""

    begin_s: float
    end_s: float

    @property
    def days(self) -> float:
        return (self.end_s - self.begin_s) / SECONDS_PER_DAY


def replay_of(
    scenario: ClusterScenario,
    jobs: Analysis | None,
    faults: Analysis | None,
) -> tuple[ClusterScenario, Replay]:
    """What a simulation replays, and the scenario for its period.

    The simulation begins at the midnight UTC before the logs do and ends with them, with the
    shorter where jobs and faults come from different stores.

    Raises:
        UsageError: the store has none, or the scenario lacks what they need.
    """
    spans = [_span(one) for one in (jobs, faults) if one is not None]
    days = min(one.days for one in spans)
    first = datetime.fromtimestamp(spans[0].begin_s, UTC).date().isoformat()
    made = replace(scenario, period=SimulatedPeriod(first, days))
    replay = Replay(notes=_shift(spans))
    if jobs is not None:
        replay = _with_jobs(made, replay, jobs, _span(jobs))
    if faults is not None:
        replay = _with_faults(made, replay, faults, _span(faults))
    return made, replay


def _shift(spans: list[_Span]) -> tuple[str, ...]:
    """What is to be said where jobs and faults are of different days."""
    days = [datetime.fromtimestamp(one.begin_s, UTC).date() for one in spans]
    if len(set(days)) == 1:
        return ()
    return (
        f"The logs of jobs begin on {days[0]}, those of faults on {days[1]}: both were "
        "shifted to start on the same day, so no job meets the faults of its own time.",
    )


def _span(analysis: Analysis) -> _Span:
    period = analysis.logs_period
    begin = datetime.combine(period.start.astimezone(UTC).date(), datetime.min.time(), UTC)
    return _Span(to_seconds(begin), to_seconds(period.end))


# -- jobs -------------------------------------------------------------------------------------


def _with_jobs(
    scenario: ClusterScenario, replay: Replay, analysis: Analysis, span: _Span
) -> Replay:
    record = site_record(analysis, with_bare_jobs=True)
    attempts = record.attempts
    where = analysis.store.where
    if not len(attempts):
        raise UsageError(f"{where}: has no jobs to replay")
    size = whole_sizes(attempts, replace(record.machine, per_node=scenario.machines.gpus_per_node))
    work_s, ended = _lengths(scenario, record, span)
    firsts = np.nonzero(attempts.is_first)[0]
    lasts = np.nonzero(attempts.is_last)[0]
    began = ~np.isnan(attempts.start_s)
    has_run = np.bincount(attempts.job, weights=began) > 0
    over = np.maximum(attempts.end_s[lasts], attempts.start_s[lasts]) <= span.begin_s
    most = scenario.machines.nodes * scenario.machines.gpus_per_node
    reasons = {
        "never started": ~has_run,
        "ask for no GPUs, or nobody knows for how many": has_run & np.isnan(size[firsts]),
        f"ask for more than the {most:,} GPUs": has_run & (size[firsts] > most),
        "were over before the first midnight": has_run & over,
        _LATER: attempts.submit_s[firsts] - span.begin_s >= scenario.period.end_s,
    }
    left_out = np.logical_or.reduce(list(reasons.values()))
    kept = np.nonzero(~left_out)[0]
    if not kept.size:
        raise UsageError(f"{where}: no job can be replayed: none has run on GPUs of the logs")
    users, accounts, owners = _owners(analysis, attempts, firsts)
    places = _priorities(scenario, attempts, firsts[kept], where)
    made = []
    for at, job in enumerate(kept.tolist()):
        first, last = int(firsts[job]), int(lasts[job])
        made.append(
            _job(
                scenario,
                attempts,
                first,
                last,
                span,
                float(work_s[last]),
                int(size[first]),
                (users[job], accounts[job], places[at]),
                is_over=bool(ended[last]),
            )
        )
    made.sort(key=lambda one: one.submit_s)
    cut = int((~ended[lasts])[kept].sum())
    notes = [f"{counted(len(made), 'job')} are replayed from {where}, not drawn."]
    if simulated := analysis.selection_head.simulated:
        notes.append(f"These are no jobs of a real cluster. {simulated}")
    notes += _left_out("job", {why: int(one.sum()) for why, one in reasons.items()})
    if tasks := sum("_" in one.job_id for one in made):
        notes.append(
            f"{counted(tasks, 'of them is a task', 'of them are tasks')} of job arrays; no "
            "accounting has %N, so nothing limits how many tasks of an array run at once."
        )
    if cut:
        notes.append(
            "The infrastructure or the end of the logs hides the length of "
            f"{counted(cut, 'job')}: they complete after as much work as the logs show."
        )
    return replace(replay, jobs=tuple(made), owners=owners, notes=(*replay.notes, *notes))


def _lengths(scenario: ClusterScenario, record: SiteRecord, span: _Span) -> tuple[Floats, Flags]:
    """Work of each job at its last attempt from the first midnight on, and whether it ended."""
    attempts = record.attempts
    started = np.maximum(attempts.start_s, span.begin_s)
    known = np.ones(len(attempts), dtype=np.bool_)
    machine = replace(record.machine, per_node=scenario.machines.gpus_per_node)
    cut = replace(attempts, start_s=started)
    silence_s = scenario.checks.heartbeat_s
    work_s, _ = work_of(cut, scenario.checkpoints, silence_s, machine, known, span.end_s)
    ended = np.isin(attempts.state.astype(str), OWN_ENDS) & ~attempts.failed
    return work_s, ended & (attempts.end_s <= span.end_s)


def _job(
    scenario: ClusterScenario,
    attempts: Attempts,
    first: int,
    last: int,
    span: _Span,
    work_s: float,
    gpus: int,
    who: tuple[int, int, int],
    *,
    is_over: bool,
) -> ReplayedJob:
    submit_s = max(0, round(attempts.submit_s[first] - span.begin_s))
    eligible_s = attempts.eligible_s[first] - span.begin_s
    outcome = STATES.index(attempts.state[last]) if is_over else COMPLETED
    work = max(1, round(work_s))
    limit = attempts.limit_s[last]
    limit_s = scenario.scheduling.longest_job_s if math.isnan(limit) else max(1, round(limit))
    if outcome == TIMEOUT:
        work = max(work, limit_s + 1)  # how much longer it would have run, nobody knows
    else:
        whole = gpus >= scenario.machines.gpus_per_node
        rules = scenario.checkpoints
        length_s = int(with_writes_s(scenario, np.array([work]), np.array([gpus]))[0])
        limit_s = max(limit_s, length_s + (rules.restart_s if whole else 0))
    user, account, priority = who
    shown = attempts.attempt_id[first].rpartition("@")[0].partition("/")[2]
    return ReplayedJob(
        job_id=shown,
        name=attempts.name[first],
        submit_s=submit_s,
        eligible_s=submit_s if math.isnan(eligible_s) else max(submit_s, round(eligible_s)),
        gpus=gpus,
        work_s=work,
        limit_s=limit_s,
        outcome=outcome,
        user=user,
        account=account,
        priority=priority,
    )


def _owners(
    analysis: Analysis, attempts: Attempts, firsts: Places
) -> tuple[list[int], list[int], Owners]:
    """Users and accounts of the jobs, and their names; a user counts in each of his accounts."""
    rows = recorded_attempts(analysis.facts)
    account_of = dict(zip(rows["attempt_id"].to_pylist(), rows["account"].to_pylist(), strict=True))
    users = [attempts.user[first] or _NOBODY for first in firsts]
    accounts = [account_of[attempts.attempt_id[first]] or _NOBODY for first in firsts]
    all_users, all_accounts = sorted(set(users)), sorted(set(accounts))
    members = dict.fromkeys(all_accounts, 0)
    for account, _ in {*zip(accounts, users, strict=True)}:
        members[account] += 1
    place_of_user = {name: k for k, name in enumerate(all_users)}
    place_of_account = {name: k for k, name in enumerate(all_accounts)}
    return (
        [place_of_user[one] for one in users],
        [place_of_account[one] for one in accounts],
        Owners(all_users, all_accounts, [members[one] for one in all_accounts]),
    )


def _priorities(
    scenario: ClusterScenario, attempts: Attempts, firsts: Places, where: str
) -> list[int]:
    """The place of each job's quality of service in the scenario."""
    names = [attempts.qos[first] for first in firsts]
    if not any(names) and len(scenario.priorities) == 1:
        return [0] * len(names)
    places = {one.name: k for k, one in enumerate(scenario.priorities)}
    absent = sorted({name or _NO_QOS for name in names} - set(places))
    if absent:
        raise UsageError(
            f"{where}: its jobs have {counted(len(absent), 'quality', 'qualities')} of service "
            f"that the scenario lacks ({', '.join(absent[:5])}); add them to [[priorities]], or "
            "let `ettr simulate fit` write a scenario of this store"
        )
    return [places[name or _NO_QOS] for name in names]


# -- faults -----------------------------------------------------------------------------------


def _with_faults(
    scenario: ClusterScenario, replay: Replay, analysis: Analysis, span: _Span
) -> Replay:
    where = analysis.store.where
    check_one_cluster(analysis)
    everything, _ = faults_of(analysis.facts, analysis.given)
    if not len(everything):
        raise UsageError(f"{where}: has no faults of nodes to replay")
    machine = machine_of(analysis, recorded_attempts(analysis.facts))
    named = everything.of_nodes([node is not None for _, node in everything.nodes])
    if not len(named):
        raise UsageError(
            f"{where}: none of its {counted(len(everything), 'fault')} names a node, so that none "
            "can be replayed; draw them (without --faults-from)"
        )
    raw = named.of_nodes([machine.has(*node) for node in named.nodes])
    if not len(raw):
        raise UsageError(
            f"{where}: all of its faults are of nodes without GPUs, so that none can be replayed; "
            "draw them (without --faults-from)"
        )
    found = faults_with_effects(raw, analysis, span.end_s)
    names = named_symptoms(found)
    known = {one.symptom for one in scenario.faults}
    absent = sorted(set(names.tolist()) - known)
    if absent:
        raise UsageError(
            f"{where}: its faults have symptoms that the scenario lacks ({', '.join(absent)}); add "
            "them to [[faults]], or let `ettr simulate fit` write a scenario of this store"
        )
    in_fleet = {node for node in analysis.logs_fleet.spans_s if machine.has(*node)}
    fleet = sorted({node for _, node in in_fleet if node} | set(found.node))
    if len(fleet) > scenario.machines.nodes:
        raise UsageError(
            f"{where}: has faults of a fleet of {len(fleet):,} nodes, the scenario "
            f"{scenario.machines.nodes:,}; give machines.nodes = {len(fleet)} or more"
        )
    place = {name: k for k, name in enumerate(fleet)}
    at_s = np.rint(found.start_s - span.begin_s)
    is_early, is_late = at_s < 0, at_s >= scenario.period.end_s
    made = [
        ReplayedFault(
            time_s=int(at_s[i]),
            node=place[found.node[i]],
            symptom=names[i],
            repair_s=None if math.isnan(found.repair_s[i]) else max(1, round(found.repair_s[i])),
        )
        for i in np.nonzero(~is_early & ~is_late)[0].tolist()
    ]
    if not made:
        raise UsageError(
            f"{where}: none of its {counted(len(raw), 'fault')} came in the "
            f"{scenario.period.days:.3g} days that are simulated, so that none can be replayed"
        )
    made.sort(key=lambda one: (one.time_s, one.node, one.symptom))
    drawn = sum(one.repair_s is None for one in made)
    note = (
        f"{counted(len(made), 'fault')} on {counted(len({one.node for one in made}), 'node')} are "
        f"replayed from {where}, with their repairs"
        + (f" but for {drawn:,} that no log shows" if drawn else "")
        + "; bursts, lemons and false alarms are those that happened. One that comes to a node "
        "which is out of service in the simulation is passed over."
    )
    left_out = {
        "name no node": len(everything) - len(named),
        "are of nodes without GPUs": len(named) - len(raw),
        "came before the first midnight": int(is_early.sum()),
        _LATER: int(is_late.sum()),
    }
    notes = [note, *_left_out("fault", left_out)]
    return replace(replay, faults=tuple(made), notes=(*replay.notes, *notes))


def _left_out(what: str, reasons: dict[str, int]) -> list[str]:
    return [f"{counted(n, what)} that {why} are left out." for why, n in reasons.items() if n]
