"""The states of a supervised run, of its processes and of a generation, and how they follow.

Standard library only. docs/explanation/elastic-states.md draws them; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from ettr.errors import UsageError

StateT = TypeVar("StateT", bound=StrEnum)


class SupervisionState(StrEnum):
    """The run, as the supervisor sees it."""

    FORMING = "forming"  # no step was made since the start or the last failure
    TRAINING = "training"  # steps are made
    FINISHING = "finishing"  # every rank has trained to the end; processes are ending
    FINISHED = "finished"
    GAVE_UP = "gave-up"


class WorkerState(StrEnum):
    """One process that the supervisor started."""

    SPARE = "spare"  # waits for a slot
    RANK = "rank"  # holds a slot of the current generation
    KILLED = "killed"  # its slot is another's; the kernel has not finished with it
    ENDED = "ended"  # its exit status is known


class RankState(StrEnum):
    """The training loop of one process under the supervisor."""

    WAITING = "waiting"  # for a slot, or for the generation after a failure
    FORMING = "forming"  # meets the other ranks of a generation
    TRAINING = "training"  # within `train`
    TRAINED = "trained"  # `train` has returned; other ranks may still need this one
    FAILED = "failed"  # a collective failed; the supervisor has not called a new generation
    REPORTED = "reported"  # the same, and the supervisor was informed
    DONE = "done"
    EVICTED = "evicted"  # another process holds its slot
    GAVE_UP = "gave-up"  # no new generation came: the failure was the script's own


class AttemptState(StrEnum):
    """One rank in one attempt of torchrun."""

    STARTING = "starting"
    RECOVERED = "recovered"  # all ranks agree on a state; shards in shared memory are kept
    ADVANCED = "advanced"  # a step was made; shards in shared memory were removed
    BROKEN_OFF = "broken-off"  # the shard is saved to shared memory
    FINISHED = "finished"


class GenerationState(StrEnum):
    """One generation on one rank."""

    FORMED = "formed"  # the group is there, the model may be built
    RECOVERING = "recovering"
    TRAINING = "training"
    UPDATING = "updating"  # parameters change: a failure now leaves the shard torn
    SAVING = "saving"  # the update is complete; copies of it are made
    ENDED = "ended"


def _transitions(
    states: type[StateT], table: Mapping[str, str]
) -> Mapping[StateT, frozenset[StateT]]:
    return {states(name): frozenset(map(states, after.split())) for name, after in table.items()}


RUN_TRANSITIONS = _transitions(
    SupervisionState,
    {
        "forming": "forming training finishing gave-up",
        "training": "forming finishing gave-up",
        "finishing": "finished",
        "finished": "",
        "gave-up": "",
    },
)
WORKER_TRANSITIONS = _transitions(
    WorkerState, {"spare": "rank ended", "rank": "killed ended", "killed": "ended", "ended": ""}
)
RANK_TRANSITIONS = _transitions(
    RankState,
    {
        "waiting": "forming evicted",
        "forming": "training failed",
        "training": "trained failed",
        "trained": "done failed",
        "failed": "waiting reported gave-up",
        "reported": "waiting gave-up",
        "done": "",
        "evicted": "",
        "gave-up": "",
    },
)
ATTEMPT_TRANSITIONS = _transitions(
    AttemptState,
    {
        "starting": "recovered broken-off finished",
        "recovered": "advanced broken-off finished",
        "advanced": "broken-off finished",
        "broken-off": "",
        "finished": "",
    },
)
GENERATION_TRANSITIONS = _transitions(
    GenerationState,
    {
        "formed": "recovering ended",
        "recovering": "training ended",
        "training": "updating ended",
        "updating": "updating saving ended",
        "saving": "training ended",
        "ended": "",
    },
)


class TransitionError(UsageError):
    """Calls came in an order that is not possible."""


def transition(
    now: StateT, to: StateT, transitions: Mapping[StateT, frozenset[StateT]], what: str
) -> StateT:
    """Return the new state, if it may follow."""
    if to not in transitions[now]:
        allowed = ", ".join(sorted(transitions[now])) or "nothing"
        raise TransitionError(f"{what} is {now} and cannot become {to}; {allowed} may follow")
    return to
