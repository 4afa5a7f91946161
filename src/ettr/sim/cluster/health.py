"""The health of nodes: faults, what they end, who finds them, drains, repairs, returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from ettr.checks.selector import (
    Bools,
    Offer,
    Prospect,
    after_pass,
    after_survival,
    choose,
    survival,
)
from ettr.sim.cluster.faults import (
    CRASH,
    DEGRADED,
    DOWN,
    FALSE_HIGH,
    HIDDEN,
    BurstHit,
    FaultMaker,
    NodeDraws,
    NodeFault,
    Suspects,
    alarms_of,
    burst_hits,
    clocks_of,
    lemons_of,
)
from ettr.sim.cluster.log import Hours, SiteLog, Use
from ettr.sim.cluster.room import FAR_S, Calendar, EventKind
from ettr.sim.cluster.scenario import EVIDENCE, ClusterScenario, covers_of
from ettr.sim.cluster.scenario_parts import FaultProcess
from ettr.sim.cluster.scheduler import FAILED, NODE_FAIL, REQUEUED
from ettr.sim.cluster.workload import Job, ReplayedFault
from ettr.sim.engine import stream
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

# -- checks of nodes before jobs of whole nodes: which policy runs which, and what it believes -----
# A policy sees what an operator sees: how long a node has served, which checks it passed, which
# faults struck it. Of the scenario it knows the rates and the coverage, not which nodes are lemons.


class CheckPolicy:
    """The node checks of a scenario, by number, and which of them run."""

    def __init__(self, scenario: ClusterScenario) -> None:
        self._scenario = scenario
        kinds = [one for one in scenario.faults if one.latent_s]
        n_nodes, n_checks = scenario.machines.nodes, len(scenario.node_checks)
        self.kinds: Mapping[str, int] = {one.symptom: at for at, one in enumerate(kinds)}
        self.run_s = np.array([one.run_s for one in scenario.node_checks])
        self._rate_per_h = np.array([one.per_1000_node_days for one in kinds]) / 24_000.0
        self._strike_per_h = np.array([SECONDS_PER_HOUR / one.latent_s for one in kinds])
        self.coverage = np.zeros((n_checks, len(kinds)))
        for check, one in enumerate(scenario.node_checks):
            for symptom, share in covers_of(one.covers).items():
                self.coverage[check, self.kinds[symptom]] = share
        self._checked_s = np.full((n_checks, n_nodes), -math.inf)
        self._belief = np.zeros((n_nodes, len(kinds)))
        self._since_s = np.zeros((n_nodes, len(kinds)))
        self._strikes = np.zeros(n_nodes)

    def runs(self, nodes: Sequence[int], limit_s: float, now_s: int) -> Bools:
        """Which checks run on which of the nodes of a job that starts, shape (checks, nodes)."""
        policy, which = self._scenario.checks.policy, np.array(nodes)
        if policy == "selector":
            return self._selected(which, limit_s, now_s)
        least_s = now_s if policy == "before-each-job" else now_s - SECONDS_PER_DAY
        return np.asarray(self._checked_s[:, which] <= least_s)

    def _selected(self, nodes: np.ndarray, limit_s: float, now_s: int) -> Bools:
        scenario, rules = self._scenario, self._scenario.checkpoints
        rates = self._worse(nodes, now_s)[:, None] * self._rate_per_h
        served_h = (now_s - self._since_s[nodes]) / SECONDS_PER_HOUR
        belief = after_survival(self._belief[nodes], rates, self._strike_per_h, served_h)
        self._belief[nodes], self._since_s[nodes] = belief, now_s
        # of log-uniform time limits, what jobs use of them on average
        most = scenario.outcomes.longest_limit_factor
        used = (1 - 1 / most) / math.log(most) if most > 1 else 1.0
        hours = limit_s * used / SECONDS_PER_HOUR
        clean, with_defect = survival(rates, self._strike_per_h, hours)
        lost_h = min(rules.interval_s / SECONDS_PER_HOUR, hours) / 2
        # a defect that strikes during the restart costs the time until then, later ones all of it
        strike, restart_h = self._strike_per_h, rules.restart_s / SECONDS_PER_HOUR
        is_later = np.exp(-strike * restart_h)
        cost_h = (1 - is_later) / strike + is_later * lost_h
        incident_h = float((belief @ cost_h).sum() / max(belief.sum(), 1e-300))
        false_h = scenario.checks.false_repair_mean_s / SECONDS_PER_HOUR
        chances = np.array([one.false_alarm_chance for one in scenario.node_checks])
        prospect = Prospect(belief, clean, with_defect, incident_h * len(nodes), restarts=True)
        offer = Offer(self.coverage, self.run_s / SECONDS_PER_HOUR, chances * false_h, waits=True)
        return choose(prospect, offer).runs

    def _worse(self, nodes: np.ndarray, now_s: int) -> np.ndarray:
        """By how much each node is expected to fail more often, from the strikes so far."""
        share, factor = self._scenario.lemons.share, self._scenario.lemons.factor
        if not share or factor <= 0.0:
            return np.ones(len(nodes))
        usual = float(self._rate_per_h.sum()) * now_s / SECONDS_PER_HOUR
        odds = np.log(max(1 - share, 1e-12) / share) - self._strikes[nodes] * math.log(factor)
        odds += (factor - 1) * usual
        return np.asarray(1 + (factor - 1) / (1 + np.exp(np.clip(odds, -700, 700))))

    def passed(self, nodes: Sequence[int], is_passed: Bools, now_s: int) -> None:
        """Checks found nothing on nodes, shape (checks, nodes)."""
        which = np.array(nodes)
        self._checked_s[:, which] = np.where(is_passed, now_s, self._checked_s[:, which])
        for check in np.flatnonzero(is_passed.any(axis=1)):
            own = which[is_passed[check]]
            self._belief[own] = after_pass(self._belief[own], self.coverage[check])

    def gone(self, symptom: str, node: int, now_s: int) -> None:
        """A defect was found, or struck: the repair takes it away."""
        kind = self.kinds[symptom]
        self._belief[node, kind], self._since_s[node, kind] = 0.0, now_s
        self._strikes[node] += 1


# -- the health of nodes: faults, what they end, who finds them, drains, repairs, returns ----------


class RunningJob(Protocol):
    """What faults see and change of a job that runs."""

    stuck_s: int

    @property
    def number(self) -> int:
        """Its id."""

    @property
    def gpus(self) -> int:
        """That it needs."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """On which it runs."""

    @property
    def shown(self) -> str:
        """Its id as the scheduler shows it."""


class Jobs(Protocol):
    """What the health of nodes needs of the scheduler; as in `Scheduler`."""

    def jobs_on(self, node: int) -> Sequence[RunningJob]:
        """The jobs that run on a node, in the order of their numbers."""

    def is_open(self, node: int) -> bool:
        """Whether a node takes jobs."""

    def free_gpus(self, node: int) -> int:
        """Free GPUs of a node."""

    def close(self, node: int) -> None:
        """A node takes no more jobs."""

    def reopen(self, node: int, now_s: int) -> None:
        """A node takes jobs again."""

    def interrupt(self, job: Any, state: str, now_s: int, *, fault: NodeFault, node: int) -> None:
        """An attempt ends by a fault."""

    def resubmit(self, job: Any, at_s: int) -> None:
        """The owner of a job that has ended submits it again under another id."""


@dataclass(slots=True)
class OpenOutage:
    """A node that takes no jobs: in which state, why, since when, and for what it is repaired."""

    state: str
    flags: str | None
    reason: str
    start_s: int
    fault: NodeFault
    is_repairing: bool = False


class Health:
    """All nodes; a node is in service unless it is being repaired."""

    def __init__(
        self,
        scenario: ClusterScenario,
        seed: int,
        calendar: Calendar,
        scheduler: Jobs,
        hours: Hours,
        log: SiteLog,
        replayed: Sequence[ReplayedFault] | None = None,
    ) -> None:
        machines = scenario.machines
        self._scenario, self._calendar, self._hours, self._log = scenario, calendar, hours, log
        self._scheduler, self._per_node = scheduler, machines.gpus_per_node
        # nobody knows which nodes of a log are lemons
        self.lemons = lemons_of(scenario, seed) if replayed is None else frozenset()
        self.maker = FaultMaker(scenario, seed)
        self._suspects = Suspects(scenario, seed)
        self.outages: dict[int, OpenOutage] = {}
        self._by_symptom = {one.symptom: one for one in scenario.faults}
        self._clocks = clocks_of(scenario, seed, self.lemons) if replayed is None else []
        self._turn = [0] * machines.nodes
        self._silenced_by = [0] * machines.nodes
        interval_s = scenario.checks.interval_s
        phases = stream(seed, "checks").integers(0, interval_s, machines.nodes)
        self._phase_s: list[int] = phases.tolist()
        self._owners = NodeDraws(seed, "resubmissions", machines.nodes)
        n_days = math.ceil(scenario.period.days) + 1
        self._day_lines = np.zeros((machines.nodes, n_days), dtype=np.int32)
        self._in_service_since = [0] * machines.nodes
        self._hidden: list[dict[str, tuple[NodeFault, str]]] = [{} for _ in range(machines.nodes)]
        self._latent = {
            one.symptom: NodeDraws(seed, f"latent {one.symptom}", machines.nodes)
            for one in scenario.faults
            if one.latent_s
        }
        self._policy = CheckPolicy(scenario)
        self._false = next(one for one in alarms_of(scenario) if one.symptom == FALSE_HIGH)
        self._luck = [
            NodeDraws(seed, f"check {one.name}", machines.nodes) for one in scenario.node_checks
        ]
        self._schedule_first()
        for hit in burst_hits(scenario, seed) if replayed is None else replayed:
            if hit.time_s < scenario.period.end_s:
                calendar.put(hit.time_s, EventKind.FAULT, hit.node, hit)

    def _schedule_first(self) -> None:
        """Put the first fault of each node into the calendar."""
        end_s = self._scenario.period.end_s
        due_s = np.full(self._scenario.machines.nodes, math.inf)
        for clock in self._clocks:
            due_s = np.minimum(due_s, clock.first_due_s())
        for node in np.flatnonzero(due_s < end_s).tolist():
            self._calendar.put(int(due_s[node]), EventKind.FAULT, node, self._turn[node])

    def _schedule(self, node: int) -> None:
        """Put the next fault of a node into the calendar."""
        due_s = min((clock.due_s(node) for clock in self._clocks), default=FAR_S)
        if due_s < self._scenario.period.end_s:
            self._calendar.put(due_s, EventKind.FAULT, node, self._turn[node])

    def is_in_service(self, node: int) -> bool:
        """Whether a node is not being repaired."""
        outage = self.outages.get(node)
        return outage is None or not outage.is_repairing

    def happen(self, kind: EventKind, number: int, about: object, now_s: int) -> None:
        """An event of a node happens: a fault, a check, or its return from repair."""
        if kind == EventKind.FAULT:
            self.strike(number, about, now_s)
        elif kind == EventKind.CHECK:
            fault = cast(NodeFault, about)
            if fault.effect == HIDDEN or fault.process is self._false:
                self._find_early(fault, now_s)
            else:
                self.find(fault, now_s)
        else:
            self.give_back(number, now_s)

    # -- faults -------------------------------------------------------------------------------

    def strike(self, node: int, about: object, now_s: int) -> None:
        """A fault of a node's own, one of a burst, or a replayed one is due."""
        if isinstance(about, ReplayedFault):
            if self.is_in_service(node):
                self._arise(self._by_symptom[about.symptom], node, now_s, repair_s=about.repair_s)
            return
        if isinstance(about, BurstHit):
            if self.is_in_service(node):
                self._arise(self._by_symptom[about.symptom], node, now_s, about.burst)
            return
        if isinstance(about, NodeFault):
            self._break_out(about, now_s)
            return
        if about != self._turn[node]:
            return
        for clock in self._clocks:
            if clock.due_s(node) <= now_s:
                clock.strike(node, now_s)
                if clock.in_force(now_s):
                    self._arise(clock.process, node, now_s)
        self._turn[node] += 1
        self._schedule(node)

    def _arise(
        self,
        process: FaultProcess,
        node: int,
        now_s: int,
        burst: str = "",
        repair_s: int | None = None,
    ) -> None:
        is_hidden = process.latent_s and not burst and repair_s is None
        if is_hidden and process.symptom in self._hidden[node]:
            return
        fault = self.maker.make(process, node, now_s, burst, repair_s)
        if is_hidden:
            self._hidden[node][process.symptom] = fault, fault.effect
            fault.effect = HIDDEN
            self._wait_hidden(fault, now_s)
        else:
            self._come(fault, now_s)

    def _wait_hidden(self, fault: NodeFault, now_s: int) -> None:
        wait_s = fault.process.latent_s * self._latent[fault.process.symptom].exponential(
            fault.node
        )
        self._calendar.put(now_s + 1 + int(wait_s), EventKind.FAULT, fault.node, fault)

    def _break_out(self, fault: NodeFault, now_s: int) -> None:
        """A defect that was hidden strikes, unless it is gone; out of service none does."""
        symptom = fault.process.symptom
        found, effect = self._hidden[fault.node].get(symptom, (None, ""))
        if found is not fault:
            return
        if not self.is_in_service(fault.node):
            self._wait_hidden(fault, now_s)  # an exponential time has no memory
            return
        del self._hidden[fault.node][symptom]
        fault.effect, fault.time_s = effect, now_s
        self._policy.gone(symptom, fault.node, now_s)
        self._come(fault, now_s)

    def _come(self, fault: NodeFault, now_s: int) -> None:
        """A fault does what it does."""
        node = fault.node
        gpu = self.maker.gpu_of(fault, self._per_node)
        if fault.is_seen and not fault.is_alarm:
            self._log.kernel(fault, gpu)
        if fault.effect == DOWN:
            for job in self._scheduler.jobs_on(node):
                job.stuck_s = now_s if job.stuck_s < 0 else job.stuck_s
            self._silenced_by[node] = fault.number
            self._close(node, now_s)  # the scheduler gives no jobs to a node that does not answer
            silent_s = self._scenario.checks.heartbeat_s
            self._calendar.put(now_s + silent_s, EventKind.CHECK, node, fault)
            return
        if fault.effect == CRASH:
            self._crash(fault, gpu, now_s)
        if fault.is_seen:
            at_s = self._next_check_s(fault.suspect, now_s)
            self._calendar.put(at_s, EventKind.CHECK, fault.suspect, fault)

    def _next_check_s(self, node: int, now_s: int) -> int:
        interval_s = self._scenario.checks.interval_s
        return now_s + (self._phase_s[node] - now_s) % interval_s

    def _crash(self, fault: NodeFault, gpu: int, now_s: int) -> None:
        """The jobs that a fault hits end as FAILED; some owners submit theirs again."""
        jobs = self._scheduler.jobs_on(fault.node)
        if EVIDENCE[fault.symptom].of_one_gpu:
            jobs = self._holder(fault.node, gpu)
        if fault.is_seen:
            self._accuse(fault, jobs, now_s)
        for job in jobs:
            self._scheduler.interrupt(job, FAILED, now_s, fault=fault, node=fault.node)
            rules = self._scenario.checkpoints
            comes_again = self._owners.uniform(fault.node) < rules.resubmit_chance
            wait_s = round(rules.mean_resubmit_s * self._owners.exponential(fault.node))
            if comes_again:
                self._scheduler.resubmit(job, now_s + 1 + wait_s)

    def _holder(self, node: int, gpu: int) -> Sequence[RunningJob]:
        """The job that holds a GPU of a node, GPUs being counted in the order of job numbers."""
        first = 0
        for job in self._scheduler.jobs_on(node):
            first += min(job.gpus, self._per_node)
            if gpu < first:
                return [job]
        return []

    def _accuse(self, fault: NodeFault, jobs: Sequence[RunningJob], now_s: int) -> None:
        """Decide who is blamed for a fault that ends these jobs."""
        for job in jobs:
            fault.blamed = self._suspects.instead_of(fault.node, job.nodes)
        if fault.blamed < 0:
            return
        for clock in self._clocks:
            if clock.process is fault.process:
                clock.not_repaired(fault.node, fault.time_s, now_s)
        self._turn[fault.node] += 1
        self._schedule(fault.node)

    # -- checks before jobs -------------------------------------------------------------------

    def check_before(self, job: Job, now_s: int) -> int:
        """Run the checks of the policy on the nodes of a job, which waits for so many seconds."""
        policy, names = self._policy, self._scenario.node_checks
        runs = policy.runs(job.nodes, job.limit_s, now_s)
        held_s = math.ceil(float((policy.run_s @ runs).max(initial=0.0)))
        reached_s = [float(now_s)] * len(job.nodes)
        found: dict[int, NodeFault] = {}
        for check, at in np.argwhere(runs).tolist():  # in the order of the checks
            node, begin_s = job.nodes[at], reached_s[at]
            reached_s[at] += policy.run_s[check]
            fault = self._found_by(check, node, now_s)
            shown = None if fault is None else fault.symptom
            self._log.node_check(names[check].name, node, int(begin_s), int(reached_s[at]), shown)
            if fault is not None:
                found.setdefault(node, fault)
                runs[check, at] = False
        policy.passed(job.nodes, runs, now_s)
        for node, fault in found.items():
            self._calendar.put(now_s + held_s, EventKind.CHECK, node, fault)
        return held_s

    def _found_by(self, check: int, node: int, now_s: int) -> NodeFault | None:
        luck, kinds = self._luck[check], self._policy.kinds
        for symptom, (fault, _) in self._hidden[node].items():
            if luck.uniform(node) < self._policy.coverage[check, kinds[symptom]]:
                return fault
        if luck.uniform(node) < self._scenario.node_checks[check].false_alarm_chance:
            return self.maker.make(self._false, node, now_s)
        return None

    def _find_early(self, fault: NodeFault, now_s: int) -> None:
        """What a check before a job found: the job is put back, and the node repaired."""
        node, symptom = fault.node, fault.process.symptom
        if not self.is_in_service(node):
            return
        if fault.effect == HIDDEN:
            if self._hidden[node].get(symptom, (None,))[0] is not fault:
                return
            del self._hidden[node][symptom]
            self._policy.gone(symptom, node, now_s)
        fault.found_s = now_s
        for job in self._scheduler.jobs_on(node):
            cast(Any, self._scheduler).interrupt(job, REQUEUED, now_s)
        self._take_down(fault, None, EVIDENCE[fault.symptom].reason, now_s)

    # -- checks, drains, repairs --------------------------------------------------------------

    def find(self, fault: NodeFault, now_s: int) -> None:
        """A check or the heartbeat comes to a node that is blamed for a fault."""
        node = fault.suspect
        outage = self.outages.get(node)
        if outage is not None and outage.is_repairing:
            return  # it is being repaired already
        if self._in_service_since[node] > fault.time_s:
            return  # it has been repaired in the meantime
        fault.found_s = now_s
        is_high = fault.process.severity == "high"
        if fault.effect == DOWN or (fault.effect == DEGRADED and is_high):
            # of jobs that crashed it was decided then
            self._accuse(fault, self._scheduler.jobs_on(node), now_s)
        if fault.effect == DOWN:
            name = self._log.names[fault.suspect]
            words = f"error: Nodes {name} not responding, setting DOWN"
            self._log.controller("NODE_DOWN", now_s, words, node=fault.suspect)
            self._take_down(fault, "NOT_RESPONDING", "Not responding", now_s)
            self._answer(fault, now_s)
            return
        self._log.check(fault, now_s)
        reason = EVIDENCE[fault.symptom].reason
        if is_high:
            self._take_down(fault, None, reason, now_s)
        elif outage is None:
            self._drain(fault, reason, now_s)

    def _take_down(self, fault: NodeFault, flags: str | None, reason: str, now_s: int) -> None:
        """Remove a node at once; its jobs end as NODE_FAIL and are requeued."""
        node = fault.suspect
        true_node = node if fault.effect == CRASH else fault.node  # jobs that crashed are gone
        self._close(node, now_s)
        self._open_outage(node, OpenOutage("DOWN", flags, reason, now_s, fault), now_s)
        for job in self._scheduler.jobs_on(node):
            words = f"requeue job JobId={job.shown} due to failure of node {self._log.names[node]}"
            self._log.controller(NODE_FAIL, now_s, words, node=node, job_id=job.shown)
            self._scheduler.interrupt(job, NODE_FAIL, now_s, fault=fault, node=true_node)
        self._begin_repair(node, now_s)

    def _answer(self, fault: NodeFault, now_s: int) -> None:
        """A node that was silent takes jobs again where another was blamed for it."""
        node = fault.node
        is_silent_again = self._silenced_by[node] != fault.number
        if fault.blamed < 0 or node in self.outages or is_silent_again:
            return
        self._hours.advance(now_s)
        free = self._scheduler.free_gpus(node)
        self._hours.move(Use.FREE_DRAINING, Use.FREE, free)
        self._hours.move(Use.NODE_DRAINING, Use.NODE_OPEN)
        self._scheduler.reopen(node, now_s)

    def _drain(self, fault: NodeFault, reason: str, now_s: int) -> None:
        """Give a node no more jobs; the repair begins once it is empty."""
        node = fault.suspect
        self._close(node, now_s)
        self._open_outage(node, OpenOutage("DRAIN", None, reason, now_s, fault), now_s)
        if self._scheduler.free_gpus(node) == self._per_node:
            self._begin_repair(node, now_s)

    def _close(self, node: int, now_s: int) -> None:
        if not self._scheduler.is_open(node):
            return
        self._hours.advance(now_s)
        free = self._scheduler.free_gpus(node)
        self._hours.move(Use.FREE, Use.FREE_DRAINING, free)
        self._hours.move(Use.NODE_OPEN, Use.NODE_DRAINING)
        self._scheduler.close(node)

    def _open_outage(self, node: int, outage: OpenOutage, now_s: int) -> None:
        if node in self.outages:
            self._log_outage(node, now_s)
        self.outages[node] = outage

    def _log_outage(self, node: int, end_s: int | None) -> None:
        outage = self.outages[node]
        if end_s is not None and end_s == outage.start_s:
            return
        self._log.node_state(node, outage.state, outage.flags, outage.reason, outage.start_s, end_s)

    def look_at(self, nodes: Iterable[int], now_s: int) -> None:
        """Begin the repair of draining nodes that have become empty."""
        for node in nodes:
            outage = self.outages.get(node)
            empty = self._scheduler.free_gpus(node) == self._per_node
            if outage is not None and not outage.is_repairing and empty:
                self._begin_repair(node, now_s)

    def _begin_repair(self, node: int, now_s: int) -> None:
        """A node leaves service, and its clocks stop."""
        outage = self.outages[node]
        outage.is_repairing = True
        self._turn[node] += 1
        for clock in self._clocks:
            clock.stop(node, now_s)
        self._count_checks(node, now_s)
        self._hours.advance(now_s)
        self._hours.move(Use.FREE_DRAINING, Use.OUT, self._per_node)
        self._hours.move(Use.NODE_DRAINING, Use.NODE_OUT)
        self._calendar.put(now_s + outage.fault.repair_s, EventKind.RETURN, node)

    def give_back(self, node: int, now_s: int) -> None:
        """A repaired node takes jobs again."""
        self._log_outage(node, now_s)
        del self.outages[node]
        self._hours.advance(now_s)
        self._hours.move(Use.OUT, Use.FREE, self._per_node)
        self._hours.move(Use.NODE_OUT, Use.NODE_OPEN)
        for clock in self._clocks:
            clock.resume(node, now_s)
        self._in_service_since[node] = now_s
        self._schedule(node)
        self._scheduler.reopen(node, now_s)
        words = f"node {self._log.names[node]} returned to service"
        self._log.controller("NODE_RESUMED", now_s, words, node=node)

    # -- the log of checks --------------------------------------------------------------------

    def _count_checks(self, node: int, until_s: int) -> None:
        """Count the checks of a node that has been in service until now, by day."""
        interval_s, day_s = self._scenario.checks.interval_s, int(SECONDS_PER_DAY)
        at_s = self._next_check_s(node, self._in_service_since[node])
        while at_s < until_s:
            day = at_s // day_s
            last_s = min(until_s, (day + 1) * day_s)
            n_checks = -(-(last_s - at_s) // interval_s)
            self._day_lines[node, day] += n_checks
            at_s += n_checks * interval_s

    def still_there(self, now_s: int) -> None:
        """Log outages that last as the simulation ends, and on which days checks arrived."""
        for node in sorted(self.outages):
            self._log_outage(node, None)
        for node in range(self._scenario.machines.nodes):
            if self.is_in_service(node):
                self._count_checks(node, now_s)
        self._log.log_days(self._day_lines)
