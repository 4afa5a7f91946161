"""How attempts ended: the truth table of end states, refined by what the controller's log says."""

from __future__ import annotations

import ibis
from ibis.expr.types import BooleanValue, Table

from ettr.attribution.rules import LogMatching, seconds
from ettr.attribution.verdicts import SLURMCTLD
from ettr.tables import INTERRUPTIONS
from ettr.tables.ibis_time import epoch_us
from ettr.tables.materialize import materialize
from ettr.taxonomy import Taxonomy
from ettr.units import MICROSECONDS_PER_SECOND

HARDWARE_CANDIDATE = "hardware-candidate"
PREEMPTION = "preemption"
USER_FAILURE = "user-failure"
NO_INTERRUPTION = "none"
TIME_LIMIT = "time-limit"
NODE_FAIL = "NODE_FAIL"
NODE_FAILED = ("NODE_FAIL", "JOB_LOST")  # a lost job: its node came back without it
PREEMPTED = "PREEMPTED"
OUT_OF_MEMORY = "OUT_OF_MEMORY"
OUT_OF_MEMORY_SIGNAL = 125  # not a signal: Slurm's own mark for a step that the OOM killer ended
ROOT = ("0", "root")


def endings(
    attempts: Table, events: Table, taxonomy: Taxonomy, matching: LogMatching | None = None
) -> Table:
    """Interrupted attempts with what the scheduler itself says about their end.

    The columns of `interruptions`, and also `node_failed` (the scheduler says that a node
    failed), `named_node` (which one) and `named_event` (id of the event that says so).
    """
    ended = _by_state(attempts, taxonomy)
    # few: kept, since an engine that expects many would hash all attempts for the join
    reports = materialize(_controller_reports(attempts, events, matching or LogMatching()))
    known = ended.left_join(reports, "attempt_id").drop("attempt_id_right")
    failed = known.node_failed | known.failed_node.notnull() | known.reported_code.isin(NODE_FAILED)
    known = known.mutate(
        node_failed=failed.fill_null(False),
        preempted=(known.reported_code == PREEMPTED).fill_null(False),
        named_node=ibis.coalesce(
            known.failed_node,
            ibis.cases(
                (known.reported_code.isin(NODE_FAILED), known.reported_node),
                else_=ibis.null("string"),
            ),
            ibis.cases(
                (failed & known.only_node.notnull(), known.only_node), else_=ibis.null("string")
            ),
        ),
        named_event=ibis.cases(
            (known.reported_code.isin(NODE_FAILED), known.reported_event), else_=ibis.null("string")
        ),
    )
    kind = ibis.cases(
        (known.node_failed, HARDWARE_CANDIDATE), (known.preempted, PREEMPTION), else_=known.kind
    )
    columns = (*INTERRUPTIONS.names, "node_failed", "named_node", "named_event")
    return known.mutate(kind=kind).filter(lambda t: t.kind != NO_INTERRUPTION).select(*columns)


def interruptions(attempts: Table, events: Table, taxonomy: Taxonomy) -> Table:
    """The table `interruptions`: attempts that ended against their owner's wish, and how."""
    return endings(attempts, events, taxonomy).select(*INTERRUPTIONS.names)


def _by_state(attempts: Table, taxonomy: Taxonomy) -> Table:
    """Ended attempts other than the completed, with the kind that their end state alone gives."""
    states = taxonomy.states
    kinds = [(state, _kind(entry.kind)) for state, entry in states.items()]
    owners = [(state, _kind(entry.kind_by_owner)) for state, entry in states.items()]
    sure = [s for s, e in states.items() if e.kind == HARDWARE_CANDIDATE and not e.needs_evidence]
    open_or_done = [s for s, e in states.items() if not e.terminal or s == "COMPLETED"]
    ended = attempts.filter(attempts.end.notnull() & attempts.state.notin(open_or_done))
    cancelled = _cancelled_by_others(ended)
    ended = ended.left_join(cancelled, ["cluster", "cancelled_by"])
    return ended.select(
        "cluster",
        "attempt_id",
        "job_id",
        "state",
        "start",
        "end",
        "n_nodes",
        "n_gpus",
        "failed_node",
        only_node=ibis.cases((ended.n_nodes == 1, ended.node_list), else_=ibis.null("string")),
        elapsed_s=ibis.cases((ended.start.isnull(), 0.0), else_=ended.elapsed_s),
        node_failed=ended.state.isin(sure),
        kind=ibis.cases(
            (_killed_for_memory(ended), USER_FAILURE),
            (_by_owner(ended), ended.state.cases(*owners, else_=NO_INTERRUPTION)),
            else_=ended.state.cases(*kinds, else_=NO_INTERRUPTION),
        ),
    )


def _kind(kind: str) -> str:
    """An attempt that used up the time it asked for was not interrupted."""
    return NO_INTERRUPTION if kind == TIME_LIMIT else kind


def _killed_for_memory(ended: Table) -> BooleanValue:
    """FAILED although a step says OUT_OF_MEMORY: the job row does not show it."""
    signalled = (ended.derived_exit_signal == OUT_OF_MEMORY_SIGNAL) | (
        ended.exit_signal == OUT_OF_MEMORY_SIGNAL
    )
    out_of_memory = (ended.step_state == OUT_OF_MEMORY).fill_null(False)
    return (ended.state == "FAILED") & (out_of_memory | signalled.fill_null(False))


def _by_owner(ended: Table) -> BooleanValue:
    """The owner's own act, as far as the row shows it: a cancel, or a requeue by exit code."""
    by_other = ended.cancelled_by.isin(ROOT) | ended.n_users.notnull()
    own_cancel = (ended.state == "CANCELLED") & ~by_other.fill_null(False)
    own_code = ended.state.isin(["REQUEUED", "REQUEUE_HOLD"]) & (ended.exit_code > 0)
    return own_cancel | own_code.fill_null(False)


def _cancelled_by_others(ended: Table) -> Table:
    """Uids that cancelled jobs of more than one user: no owners, though no log says who they are.

    Slurm prints the uid of who cancelled and the name of the owner, and nothing joins the two.
    """
    cancels = ended.filter(ended.cancelled_by.notnull())
    users = cancels.group_by("cluster", "cancelled_by").agg(n_users=cancels.user.nunique())
    return users.filter(users.n_users > 1)


def _controller_reports(attempts: Table, events: Table, matching: LogMatching) -> Table:
    """What slurmctld.log says about the end of an attempt: at most one line for each attempt."""
    # Few lines of all events: with their number known, the engine hashes them and not the attempts.
    lines = materialize(
        events.filter(
            (events.check == SLURMCTLD)
            & events.code.isin([*NODE_FAILED, PREEMPTED])
            & events.job_id.notnull()
        ).select(
            "cluster",
            reported_job="job_id",
            reported_code="code",
            reported_node="node",
            reported_event="event_id",
            reported_time="time",
        )
    )
    ends = attempts.filter(attempts.end.notnull()).select(
        "cluster", "attempt_id", "job_id", "job_id_raw", "start", "end", "submit"
    )
    pairs = _of_job(lines, ends.drop("job_id_raw"))
    renamed = ends.filter(ends.job_id_raw != ends.job_id)
    # Only array tasks and parts of jobs have two ids: a second join would read all of the rest.
    if renamed.limit(1).count().to_pyarrow().as_py():
        others = renamed.drop("job_id").rename(job_id="job_id_raw")
        pairs = ibis.union(pairs, _of_job(lines, others), distinct=False)
    distance = epoch_us(pairs.reported_time) - epoch_us(pairs.end)
    tolerance = seconds(matching.tolerance_s)
    # A requeue keeps the job id: the line belongs to the attempt whose end is nearest.
    near = pairs.mutate(distance_us=distance.abs()).filter(
        lambda t: (
            (t.distance_us <= round(matching.tolerance_s * MICROSECONDS_PER_SECOND))
            & (t.start.isnull() | (t.start <= t.reported_time + tolerance))
        )
    )
    own = ibis.row_number().over(
        ibis.window(group_by="reported_event", order_by=["distance_us", "end", "attempt_id"])
    )
    first = ibis.row_number().over(
        ibis.window(group_by="attempt_id", order_by=["weight", "distance_us", "reported_event"])
    )
    nearest = near.mutate(order=own).filter(lambda t: t.order == 0).drop("order")
    return (
        nearest.mutate(weight=(nearest.reported_code == PREEMPTED).ifelse(1, 0))
        .mutate(order=first)
        .filter(lambda t: t.order == 0)
        .select("attempt_id", "reported_code", "reported_node", "reported_event")
    )


def _of_job(lines: Table, ends: Table) -> Table:
    return lines.join(
        ends, [lines.cluster == ends.cluster, lines.reported_job == ends.job_id]
    ).select(
        "attempt_id",
        "start",
        "end",
        "reported_code",
        "reported_node",
        "reported_event",
        "reported_time",
    )
