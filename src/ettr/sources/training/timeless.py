"""Logs of training that name steps without the moments: what to read in their place."""

from __future__ import annotations

import re

_TEXT_LOGS = (
    (
        # what lies between is bounded, so that a line's time does not grow as its square
        re.compile(
            rb"^[ \t]{0,40}(?:\[[^\]\n]{0,80}\] )?[ \t]{0,40}iteration[ \t]{1,20}\d{1,12}/"
            rb"[ \t]{0,20}\d{1,12} \|",
            re.MULTILINE,
        ),
        "Megatron prints no zone with its times, or none at all: read the event files of its "
        "--tensorboard-dir",
    ),
    (
        re.compile(rb"^iter \d{1,12}: loss [-0-9.a-z]{1,40}, time [0-9.]{1,40}ms", re.MULTILINE),
        "it has how long an iteration took, and not when: have the loop write a CSV or JSON line "
        "with step and time",
    ),
    (
        re.compile(rb'"log_history"\s*:'),
        "Hugging Face's trainer_state.json has no times: read the event files of "
        'report_to="tensorboard"',
    ),
)


def why_unreadable(head: bytes, step_column: str | None) -> str:
    """Why steps cannot be read from a log of training, and what can; empty for any other file.

    Args:
        head: the first bytes of the file.
        step_column: its column of steps, if it has one and none of times.
    """
    for pattern, why in _TEXT_LOGS:
        if pattern.search(head):
            return why
    if step_column is None:
        return ""
    return (
        f"its column {step_column!r} has steps, and no column is known to have times: say which "
        "with --source metrics --columns time=NAME, or have the logger write the time of each step "
        "(TensorBoard, wandb and MLflow do)"
    )
