"""Failures of the users' own making: whose they are, how they ended, where, and what they held."""

from __future__ import annotations

from dataclasses import dataclass

import ibis
from ibis.expr.types import StringValue, Table

from ettr.metrics.instants import fetch
from ettr.metrics.selected import LASTING_S, counted, held_s, node_share
from ettr.metrics.status import in_hours, share
from ettr.tables.materialize import materialize

STATES = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE")
LISTED = 20


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of users that share something, and the GPU-hours that those attempts held.

    Attributes:
        name: What they share; null where the log has none.
        attempts: How many.
        share_of_attempts: Of all failures of users.
        gpu_hours: What those held of which it is known; None where it is known of none.
        attempts_without_gpus: Those of which it is not known, since the log does not say their GPUs
            or how long they ran.
    """

    name: str | None
    attempts: int
    share_of_attempts: float | None
    gpu_hours: float | None
    attempts_without_gpus: int


@dataclass(frozen=True, slots=True)
class UserFailures:
    """Attempts that ended FAILED, OUT_OF_MEMORY, TIMEOUT or DEADLINE, without a fault of the site.

    Each list is in order of attempts and holds the first `listed` of its groups.

    Attributes:
        attempts: All of them.
        gpu_hours: What they held, as of a group.
        attempts_without_gpus: As of a group.
        by_state: By end state.
        by_user: By owner.
        by_account: By account.
        by_exit: By exit code of the batch script, or the signal that ended it.
        by_node: Of those that ran on one node alone, by node.
        one_node_attempts: How many ran on one node alone.
        listed: Most groups of one list.
    """

    attempts: int
    gpu_hours: float | None
    attempts_without_gpus: int
    by_state: tuple[FailureGroup, ...]
    by_user: tuple[FailureGroup, ...]
    by_account: tuple[FailureGroup, ...]
    by_exit: tuple[FailureGroup, ...]
    by_node: tuple[FailureGroup, ...]
    one_node_attempts: int
    listed: int


def user_failures(
    attempts: Table,
    allocations: Table,
    failures: Table,
    listed: int = LISTED,
    whole: Table | None = None,
    *,
    all_listed: bool = False,
    several_clusters: bool = False,
) -> UserFailures:
    """Failures of users by state, user, account, exit code and node.

    Attempts for which attribution found a cause in the infrastructure do not count, nor do those
    that a user cancelled.

    Args:
        attempts: attempts of a selection.
        allocations: what they held.
        failures: failures of the infrastructure.
        listed: the most groups of one list.
        whole: all attempts with all the time that they held, where a period cuts `attempts`: a
            failure, with all that its attempt held, belongs to the period in which it ended.
        all_listed: the lists of nodes of the attempts say all that they held
            (`ettr.metrics.listed_nodes`).
        several_clusters: there may be nodes of one name in two clusters: each is called
            `CLUSTER/NODE`.
    """
    own = attempts.filter(attempts["state"].isin(STATES) & counted(attempts))
    own = own.anti_join(failures, "attempt_id")
    if whole is not None:
        cut = [name for name in LASTING_S if name in own.columns and name in whole.columns]
        own = own.drop(*cut).inner_join(whole.select("attempt_id", *cut), "attempt_id")
    # what did not run held nothing for any time, and what has no GPUs none for however long
    no_time = own["start"].isnull() | (own["elapsed_s"] == 0).fill_null(False)
    held_none = no_time | (own["n_gpus"] == 0).fill_null(False)
    gpu_s = held_s(own, "n_gpus").coalesce(ibis.cases((held_none, 0.0))) * node_share(own)
    # computed once: each list below is a group of the same rows
    columns = {"gpu_s": gpu_s, "exit": _exit(own)}
    if all_listed:
        is_alone = (own["n_nodes"] == 1) & own["node_list"].notnull()
        name = _node_name(own, own["node_list"], several_clusters)
        only_node = ibis.cases((is_alone, name), else_=ibis.null("string"))
        own = materialize(own.select("state", "user", "account", only_node=only_node, **columns))
        on_one = own.filter(own["only_node"].notnull()).select("only_node", "gpu_s")
    else:
        names = ("attempt_id", "state", "user", "account", "n_nodes")
        own = materialize(own.select(*names, **columns))
        # of chosen nodes the allocations hold those alone, and the attempt may have held others
        alone = own.filter(own["n_nodes"].fill_null(1) == 1).select("attempt_id", "gpu_s")
        on_one = materialize(_on_one_node(alone, allocations, several_clusters))
    by_state = _groups(own, "state", listed)
    total = sum(one.attempts for one in by_state)
    without = sum(one.attempts_without_gpus for one in by_state)
    one_node = int(on_one.count().to_pyarrow().as_py())
    return UserFailures(
        attempts=total,
        gpu_hours=None
        if 0 < total == without
        else sum((one.gpu_hours or 0.0 for one in by_state), 0.0),
        attempts_without_gpus=without,
        by_state=by_state,
        by_user=_groups(own, "user", listed),
        by_account=_groups(own, "account", listed),
        by_exit=_groups(own, "exit", listed),
        by_node=_groups(on_one, "only_node", listed),
        one_node_attempts=one_node,
        listed=listed,
    )


def _node_name(rows: Table, node: StringValue, several_clusters: bool) -> StringValue:
    return rows["cluster"] + "/" + node if several_clusters else node


def _on_one_node(attempts: Table, allocations: Table, several_clusters: bool) -> Table:
    """The node and the GPU-seconds of the attempts that held a single one."""
    node = _node_name(allocations, allocations["node"], several_clusters)
    met = allocations.select("attempt_id", node=node).inner_join(attempts, "attempt_id")
    held = met.group_by("attempt_id").aggregate(
        rows=met.count(), only_node=met["node"].max(), gpu_s=met["gpu_s"].max()
    )
    return held.filter(held["rows"] == 1).select("only_node", "gpu_s")


def _exit(rows: Table) -> StringValue:
    """The exit code, or the signal where one ended it."""
    signal = ibis.literal("signal ") + rows["exit_signal"].cast("string")
    code = ibis.literal("exit code ") + rows["exit_code"].cast("string")
    return ibis.cases(((rows["exit_signal"] > 0).fill_null(False), signal), else_=code)


def _groups(rows: Table, column: str, listed: int) -> tuple[FailureGroup, ...]:
    found = fetch(
        rows.group_by(column).aggregate(
            lambda t: t.count().name("n"),
            lambda t: t["gpu_s"].count().name("known"),
            lambda t: t["gpu_s"].sum().name("gpu_s"),
        )
    ).to_pylist()
    found.sort(key=lambda row: (-row["n"], row[column] is None, row[column] or ""))
    total = sum(row["n"] for row in found)
    return tuple(
        FailureGroup(
            row[column],
            int(row["n"]),
            share(row["n"], total),
            in_hours(row["gpu_s"]),
            int(row["n"] - row["known"]),
        )
        for row in found[:listed]
    )
