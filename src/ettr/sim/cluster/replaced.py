"""Values of a scenario whose place a replay takes: a change of them would change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ettr.errors import UsageError
from ettr.sim.cluster.replay import Replay
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.words import counted

BY_JOBS: Mapping[str, tuple[str, ...]] = {
    "arrivals": (),
    "jobs": (),
    "outcomes": (),
    "users": (),
    "arrays": (),
    "priorities": ("share_of_shared", "share_of_gangs"),
    "scheduling": ("longest_job_s",),
}
"""Groups of which replayed jobs take the place, and their values; none for all of the group."""
BY_FAULTS: Mapping[str, tuple[str, ...]] = {
    "bursts": (),
    "rate_changes": (),
    "lemons": (),
    "checks": ("false_high_per_node_day", "false_low_per_node_day", "false_repair_mean_s"),
    "faults": ("law", "form", "per_1000_node_days", "as_new_share", "from_day", "to_day"),
    "machines": ("nodes_per_rack", "racks_per_pod"),  # only bursts ask where a node stands
}
"""The same of replayed faults."""
OF_REPAIRS = ("repair_mean_s", "repair_sigma")
"""Values of a fault process that hold where no log shows the repair."""


def replaced_by(replay: Replay, group: str, name: str, symptom: str = "") -> str:
    """Why a value has no effect under a replay; empty where it has one.

    Args:
        replay: What is replayed.
        group: Of the value, such as `faults`.
        name: Of the value in it.
        symptom: Of the fault process whose value it is; empty for other groups.
    """
    if replay.jobs is not None and _is_in(BY_JOBS, group, name):
        return "the replayed jobs decide it"
    if replay.faults is None:
        return ""
    if _is_in(BY_FAULTS, group, name):
        return "the replayed faults decide it"
    if group != "faults":
        return ""
    own, drawn = repairs_of(replay, symptom)
    if not own:
        return "no fault of that symptom is replayed"
    if name in OF_REPAIRS and not drawn:
        return "the replayed faults have their repairs"
    return ""


def repairs_of(replay: Replay, *symptoms: str) -> tuple[int, int]:
    """Replayed faults of some symptoms, and those of them whose repair no log shows."""
    found = Counter(one.repair_s is None for one in replay.faults or () if one.symptom in symptoms)
    return found.total(), found[True]


def check_replay(scenario: ClusterScenario, replay: Replay) -> None:
    """Check that the nodes of a scenario can have what is replayed.

    Raises:
        UsageError: there are too few nodes for it, or a job is of parts of several nodes.
    """
    nodes, per_node = scenario.machines.nodes, scenario.machines.gpus_per_node
    most = max((one.node + 1 for one in replay.faults or ()), default=0)
    if most > nodes:
        raise UsageError(
            f"machines.nodes: {nodes:,}; faults of {most:,} nodes are replayed: give as many or "
            "more, or draw the faults"
        )
    sizes = {one.gpus for one in replay.jobs or ()}
    if larger := [size for size in sizes if size > nodes * per_node]:
        raise UsageError(
            f"machines: {counted(nodes * per_node, 'GPU')}; replayed jobs ask for up to "
            f"{max(larger):,}: give as many or more, or draw the jobs"
        )
    if parts := sorted(size for size in sizes if size > per_node and size % per_node):
        raise UsageError(
            f"machines.gpus_per_node: {per_node}; replayed jobs ask for {parts[0]:,} GPUs, more "
            "than a node and no whole nodes: give another number, or draw the jobs"
        )


def repairs_note(change: str, replay: Replay, symptoms: tuple[str, ...]) -> str:
    """What a change of repairs leaves as it was; empty where that is nothing."""
    known, drawn = repairs_of(replay, *symptoms)
    if replay.faults is None or known == drawn:
        return ""
    return (
        f"{change} changes {counted(drawn, 'repair')} that no log shows; the other "
        f"{known - drawn:,} are those that happened."
    )


def _is_in(table: Mapping[str, tuple[str, ...]], group: str, name: str) -> bool:
    return group in table and (not table[group] or name in table[group])
