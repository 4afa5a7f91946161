"""One node of a run on several: it supervises, or serves the supervisor of another node."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ettr.checkpoint.notice import StopNotice
from ettr.elastic.supervision.agent import AgentReport, serve_node
from ettr.elastic.supervision.handshake import check_node
from ettr.elastic.supervision.node_identity import (
    Gathering,
    Meeting,
    NodeIdentity,
    in_slurm_step,
    listen,
    slurm_meeting,
    this_node,
)
from ettr.elastic.supervision.supervisor import supervise
from ettr.elastic.supervision.worker_process import SupervisorOptions, SupervisorReport
from ettr.errors import UsageError

ENV_SECRET = "ETTR_ELASTIC_TOKEN"  # noqa: S105 its name


@dataclass(frozen=True, slots=True)
class NodeSetting:
    """Which node this is, and where the nodes of the run meet.

    Attributes:
        supervises: Whether the supervisor runs here; None: if this node can listen there.
    """

    node: NodeIdentity
    meeting: Meeting
    n_nodes: int
    supervises: bool | None = None


def node_setting(
    environment: Mapping[str, str],
    *,
    meeting: Meeting | None = None,
    n_nodes: int | None = None,
    name: str | None = None,
    rack: str | None = None,
) -> NodeSetting | None:
    """From what was given and, under `srun`, from the step; None: a run on this machine alone."""
    node = this_node(environment, name, rack)
    if not in_slurm_step(environment):
        if meeting is None and (n_nodes or 1) > 1:
            raise UsageError(
                f"--nnodes {n_nodes}: give --rdzv HOST:PORT too, with a host that every node "
                f"reaches; the node that has this address supervises"
            )
        if meeting is None:
            return None
        check_node(node)
        return NodeSetting(node, meeting, n_nodes or 1)
    check_node(node)
    in_step = int(environment.get("SLURM_STEP_NUM_NODES", environment.get("SLURM_NNODES", "1")))
    if int(environment.get("SLURM_LOCALID", "0")) > 0:
        raise UsageError(
            "srun started `ettr elastic` more than once on this node: give "
            "--ntasks-per-node=1, and the ranks of a node as --ranks"
        )
    if meeting is not None:
        return NodeSetting(node, meeting, n_nodes or in_step)
    if in_step == 1 and (n_nodes or 1) == 1:
        return None
    first = _first_node(environment)
    meeting = slurm_meeting(environment, first)
    return NodeSetting(node, meeting, n_nodes or in_step, supervises=node.index == 0)


def run_node(
    command: Sequence[str],
    n_ranks: int,
    setting: NodeSetting,
    *,
    options: SupervisorOptions,
    environment: Mapping[str, str] | None = None,
    notice: StopNotice | None = None,
    on_event: Callable[[str], None] = lambda _text: None,
) -> SupervisorReport | AgentReport:
    """Supervise the run from this node, or serve its supervisor; returns how it ended."""
    environment = dict(os.environ if environment is None else environment)
    token = environment.get(ENV_SECRET, "")
    options = replace(options, n_nodes=setting.n_nodes)
    listener = None if setting.supervises is False else listen(setting.meeting)
    if listener is not None:
        on_event(f"{setting.node.name} supervises the run at {setting.meeting}")
        if not token:
            on_event(f"{ENV_SECRET} is not set: whoever reaches {setting.meeting} can join the run")
        gathering = Gathering(setting.meeting, listener, setting.node, token)
        return supervise(
            command,
            n_ranks,
            options=options,
            environment=environment,
            on_event=on_event,
            gathering=gathering,
            notice=notice,
        )
    if setting.supervises:
        raise UsageError(
            f"cannot listen at {setting.meeting}: the port is taken, or the host is not this "
            f"node; give another --rdzv HOST:PORT on every node"
        )
    return serve_node(
        command,
        n_ranks,
        setting.meeting,
        setting.node,
        environment=environment,
        token=token,
        join_s=options.node_wait_s,
        notice=notice,
        on_event=on_event,
    )


def _first_node(environment: Mapping[str, str]) -> str:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    text = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    nodes = NodeSet(text, resolver=RESOLVER_NOGROUP)
    if not nodes:
        raise UsageError("Slurm names no nodes of this step: give --rdzv HOST:PORT")
    return str(nodes[0])
