"""Ages and damage of a checkpoint as metrics for Prometheus' textfile collector.

Standard library only.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from ettr.checkpoint.slots.durable_io import replacing
from ettr.checkpoint.slots.reader import BadBlock
from ettr.checkpoint.verification import BlockAge


def prometheus_text(
    ages: Iterable[BlockAge], *, step: int, bad: Iterable[BadBlock] = (), each_block: bool = False
) -> str:
    """Ages in the text format of Prometheus.

    Args:
        step: the step that the training has reached; ages are counted back from it.
        bad: findings of `verify`.
        each_block: a line for every block, in addition to those for every slot; a large model has
            thousands.
    """
    ages, bad = list(ages), list(bad)
    steps_of: dict[str, list[int]] = {age.slot: [] for age in ages}
    for age in ages:
        if age.step is not None:
            steps_of[age.slot].append(step - age.step)
    unsaved = Counter(age.slot for age in ages if age.step is None)
    damaged = Counter(finding.slot for finding in bad)
    lost = Counter(finding.slot for finding in bad if finding.lost)
    saved = {slot: steps for slot, steps in steps_of.items() if steps}
    slots = [*steps_of, *(slot for slot in damaged if slot not in steps_of)]
    lines = [
        *_family(
            "block_age_max_steps",
            "age of the oldest block, in training steps",
            {slot: max(steps) for slot, steps in saved.items()},
        ),
        *_family(
            "block_age_mean_steps",
            "mean age of the blocks, in training steps",
            {slot: sum(steps) / len(steps) for slot, steps in saved.items()},
        ),
        *_family("blocks_unsaved", "blocks without any record", {s: unsaved[s] for s in steps_of}),
        *_family(
            "records_damaged",
            "records that fail their checksum",
            {slot: damaged[slot] for slot in slots},
        ),
        *_family(
            "records_lost",
            "damaged records whose block has no good one",
            {slot: lost[slot] for slot in slots},
        ),
    ]
    if each_block:
        lines += _block_lines(ages, step)
    return "\n".join(lines) + "\n"


def write_metrics(path: str | os.PathLike[str], text: str) -> None:
    """Put the text of `prometheus_text` into a file at once: a collector never reads half of it."""
    with replacing(Path(path), durable=False) as file:
        file.write(text.encode())


def _family(name: str, text: str, values: Mapping[str, float]) -> list[str]:
    name = f"ettr_checkpoint_{name}"
    head = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    return head + [f'{name}{{slot="{slot}"}} {value:g}' for slot, value in sorted(values.items())]


def _block_lines(ages: Iterable[BlockAge], step: int) -> list[str]:
    name = "ettr_checkpoint_block_age_steps"
    lines = [
        f"# HELP {name} age of a block, in training steps; absent: no record",
        f"# TYPE {name} gauge",
    ]
    for age in ages:
        if age.step is not None:
            at = ",".join(map(str, age.offsets))
            labels = f'slot="{age.slot}",tensor="{_escaped(age.fqn)}",offsets="{at}"'
            lines.append(f"{name}{{{labels}}} {step - age.step}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
