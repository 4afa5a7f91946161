"""Usage of every user and account over time, and the priorities that follow from it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ettr.sim.cluster.owners import Owners
from ettr.sim.cluster.policies.fair_share import (
    Weights,
    age_factor,
    decayed_gpu_s,
    effective_usage,
    fair_share_factor,
    multifactor_priority,
    size_factor,
)
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_sharing import FairShare
from ettr.sim.cluster.workload import Job

_Whose = tuple[int, ...]
_ALL: _Whose = ()


@dataclass(slots=True)
class _Usage:
    """Faded GPU-seconds until a time, and GPUs held since."""

    gpu_s: float = 0.0
    gpus: int = 0
    until_s: int = 0


class SharedUse:
    """What users and accounts have used, and the priority of a job by it."""

    def __init__(self, scenario: ClusterScenario, rules: FairShare, owners: Owners) -> None:
        self._rules, self._machines = rules, scenario.machines
        self._weights = Weights(
            rules.fair_share_weight, rules.age_weight, rules.job_size_weight, rules.qos_weight
        )
        highest = max(1, *(one.level for one in scenario.priorities))
        self._of_qos = [one.level / highest for one in scenario.priorities]
        shares = {one.name: one.shares for one in scenario.accounts}
        raw = [shares.get(name, 1.0) for name in owners.accounts]
        self._account_share = [one / sum(raw) for one in raw]
        self._members = owners.members
        self._used: dict[_Whose, _Usage] = defaultdict(_Usage)
        self._factors: dict[_Whose, float] = {}

    def change(self, job: Job, gpus: int, now_s: int) -> None:
        """A job takes GPUs, or gives them back (below 0)."""
        for whose in (_ALL, (job.account,), (job.account, job.user)):
            used = self._used[whose]
            used.gpu_s, used.until_s = self._gpu_s(used, now_s), now_s
            used.gpus += gpus

    def recalculate(self) -> None:
        """Forget the factors that were computed for the last period."""
        self._factors.clear()

    def priority(self, job: Job, now_s: int) -> int:
        """The priority of a job that waits."""
        machines, whose = self._machines, (job.account, job.user)
        factor = self._factors.get(whose)
        if factor is None:
            factor = self._factors[whose] = self._factor(job, now_s)
        per_node = machines.gpus_per_node
        return multifactor_priority(
            self._weights,
            Weights(
                fair_share=factor,
                age=age_factor(max(0, now_s - job.eligible_s), self._rules.longest_age_s),
                job_size=size_factor(
                    max(1, job.gpus // per_node) / machines.nodes,
                    job.gpus / (machines.nodes * per_node),
                ),
                qos=self._of_qos[job.priority],
            ),
        )

    def _factor(self, job: Job, now_s: int) -> float:
        everything = self._gpu_s(self._used[_ALL], now_s)
        if everything <= 0.0:
            return 1.0
        of_account = self._gpu_s(self._used[job.account,], now_s) / everything
        of_user = self._gpu_s(self._used[job.account, job.user], now_s) / everything
        part = 1.0 / self._members[job.account]
        share = self._account_share[job.account] * part
        return fair_share_factor(effective_usage(of_user, part, of_account), share)

    def _gpu_s(self, used: _Usage, now_s: int) -> float:
        elapsed_s = now_s - used.until_s
        return decayed_gpu_s(used.gpu_s, used.gpus, elapsed_s, self._rules.half_life_s)
