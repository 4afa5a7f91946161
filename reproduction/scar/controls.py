"""Checks that must hold exactly whatever the algorithm, so that a cost is a cost.

Each control runs alone, not together with other arms, so that equal inputs give equal bits.
"""

import numpy as np

from reproduction.scar.checkpoint_replay import POLICIES, Checkpointing, saved_at, stored
from reproduction.scar.trials import Prepared, costs, failure_iteration, recovered
from reproduction.scar.workload import keyed


def controls(prepared: Prepared, number: int) -> dict[str, object]:
    """The controls at one random failure, as one record; `ok` is whether all hold exactly.

    no_failure: the cost of going on from x(T) untouched; 0.
    nothing_lost: the cost of a recovery whose lost set is empty; 0.
    whole_is_traditional: with r = 1 every policy saves what the traditional scheme saves.
    all_lost_is_full: partial recovery of everything is full recovery of the same checkpoint.
    replay: the cost of full recovery with exact replay, less T − C⌊T/C⌋; 0.
    """
    settings, stream = prepared.settings, number % prepared.settings.streams
    run, offsets = prepared.runs[stream], prepared.workload.offsets
    last = min(settings.iterations, int(prepared.kappas[stream])) - 1
    at = failure_iteration(keyed(number, 1013), settings.failure_chance, last)
    now = run.states[at]
    units = offsets.size - 1
    no_failure = costs(prepared, stream, at, [now])[0][0]
    empty = recovered(now, run.states[0], offsets, np.arange(0))
    nothing_lost = costs(prepared, stream, at, [empty])[0][0]
    ages = prepared.ages[stream]
    whole = all(
        np.array_equal(
            saved_at(prepared.workload, run, Checkpointing(policy, 1), settings.interval),
            ages["full"],
        )
        for policy in POLICIES
    )
    running = stored(run, ages["priority-8"][at], offsets)
    all_lost = np.array_equal(recovered(now, running, offsets, np.arange(units)), running)
    begin = at - at % settings.interval
    again = costs(prepared, stream, begin, [stored(run, ages["full"][at], offsets)])[0][0]
    rolled_back = again + (at - begin)
    return {
        "kind": "control",
        "trial": number,
        "T": at,
        "no_failure": no_failure,
        "nothing_lost": nothing_lost,
        "whole_is_traditional": whole,
        "all_lost_is_full": all_lost,
        "replay": rolled_back - at % settings.interval,
        "ok": bool(
            whole and all_lost and max(abs(no_failure), abs(nothing_lost), abs(again)) < 1e-9
        ),
    }
