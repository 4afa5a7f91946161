"""Whether the terms of one state predict those of a state twice as large, by `ettr plan`'s rates.

As `ettr measure-recovery` measures them: the loop's wait for a full save, the time until it is
durable, and a checked restore. Both states are measured in turn, so that a noisy machine is noisy
for both; medians of nine.
"""

import argparse
import statistics
import sys
import tempfile
import time
from typing import Any

import torch

from ettr.checkpoint import RunningCheckpoint, restore
from training_stall import Adam400, train

LIMIT = 1.5
NAMES = ("stall", "durable", "restore")


def measured(layers: int, repeats: int) -> tuple[list[int], list[dict[str, list[float]]]]:
    """Bytes and times of a state of so many layers, and of one of twice as many."""
    sizes, times = [0, 0], [{name: list[float]() for name in NAMES} for _ in range(2)]
    states: list[dict[str, Any]] = []
    for factor in (1, 2):
        model = Adam400(factor * layers)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        train(model, optimizer)
        states.append({"model": model, "optimizer": optimizer})
    for _ in range(repeats):
        for at, state in enumerate(states):
            train(state["model"], state["optimizer"])
            with (
                tempfile.TemporaryDirectory(prefix="ettr-terms-") as place,
                RunningCheckpoint(place, state, policy="full") as checkpoint,
            ):
                begin_s = time.perf_counter()
                report = checkpoint.step(1)
                checkpoint.wait()
                times[at]["durable"].append(time.perf_counter() - begin_s)
                times[at]["stall"].append(report.stall_s)
                sizes[at] = report.staged_bytes
                begin_s = time.perf_counter()
                restore(place, state, slot=0)
                times[at]["restore"].append(time.perf_counter() - begin_s)
    return sizes, times


def main() -> int:
    """Print the table; 1 where a prediction is off by more than `LIMIT` times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8, help="25 MB each with their moments")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    sizes, times = measured(given.layers, given.repeats)
    print(
        f"| term | at {sizes[0] / 1e6:.0f} MB, ms | predicted at {sizes[1] / 1e6:.0f} MB, ms | ",
        end="",
    )
    print("measured, ms | measured / predicted |\n|---|---|---|---|---|")
    worst = 1.0
    for name in NAMES:
        small, large = (statistics.median(of_one[name]) for of_one in times)
        predicted = small * sizes[1] / sizes[0]
        ratio = large / predicted
        worst = max(worst, ratio, 1 / ratio)
        print(f"| {name} | {1e3 * small:.1f} | {1e3 * predicted:.1f} | ", end="")
        print(f"{1e3 * large:.1f} | {ratio:.2f} |")
    print(f"\nwithin {LIMIT} times: {'yes' if worst <= LIMIT else 'NO'} (worst {worst:.2f})")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
