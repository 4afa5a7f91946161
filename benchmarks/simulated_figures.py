"""Figures of simulated clusters: the cost of events, and waits by size."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from drawing import saved


class Cost(NamedTuple):
    """Processor time of one simulation."""

    nodes: int
    days: float
    events: int
    cpu_s: float

    @property
    def us_an_event(self) -> float:
        """Processor time of an event."""
        return 1e6 * self.cpu_s / self.events


class RealWait(NamedTuple):
    """Mean first wait that a real cluster publishes of one size.

    Attributes:
        scenario: That is after the cluster.
        cluster: Its name.
        gpus: Least of the size; drawn there.
        mean_s: Of all such jobs.
        over_1_h_percent: Of them.
        where: It is published.
    """

    scenario: str
    cluster: str
    gpus: int
    mean_s: float
    over_1_h_percent: float
    where: str


class Waits(NamedTuple):
    """Waits of one cluster in seconds; of each size the least GPUs, mean, median and 90 %."""

    name: str
    mean_s: float
    median_s: float
    of_sizes: Sequence[tuple[int, float, float, float]]


def cost_of_events(path: Path, costs: Sequence[Cost]) -> None:
    """Seconds against events with lines of one cost an event, and cost an event against nodes."""
    with saved(path, 1, 2, figsize=(10, 4.2)) as (left, right):
        sizes = sorted({one.nodes for one in costs})
        for nodes in sizes:
            mine = [one for one in costs if one.nodes == nodes]
            left.plot(
                [one.events for one in mine], [one.cpu_s for one in mine], "o-",
                label=f"{nodes:,} nodes",
            )  # fmt: skip
        ends = [min(one.events for one in costs) / 1.5, max(one.events for one in costs) * 1.5]
        for us in (1, 10):
            left.plot(ends, [1e-6 * us * events for events in ends], ":", color="gray", lw=1)
            left.annotate(f"{us} µs an event", (ends[0], 1e-6 * us * ends[0]), color="gray",
                          fontsize=8, rotation=38, rotation_mode="anchor",
                          textcoords="offset points", xytext=(8, 10))  # fmt: skip
        left.set(xscale="log", yscale="log", xlabel="events", ylabel="CPU seconds")
        left.legend(fontsize=8)
        for marker, one_of in (("o", min), ("s", max)):
            chosen = [
                one_of((one for one in costs if one.nodes == nodes), key=lambda one: one.days)
                for nodes in sizes
            ]
            label = "the shorter simulation" if one_of is min else "three times as many days"
            right.plot(sizes, [one.us_an_event for one in chosen], f"{marker}-", label=label)
        right.set(xscale="log", xlabel="nodes", ylabel="CPU µs an event")
        right.set_ylim(bottom=0)
        right.set_xticks(sizes, [f"{nodes:,}" for nodes in sizes])
        right.minorticks_off()
        right.legend(fontsize=8)
        for axes in (left, right):
            axes.grid(alpha=0.3)


def waits_by_size(
    path: Path, simulated: Sequence[Waits], published: Sequence[Waits], real: Sequence[RealWait]
) -> None:
    """Simulated waits by size, published ones beside them; over all sizes of every cluster."""
    with saved(path, 1, 2, figsize=(10, 4.2), sharey=True, width_ratios=(3, 2)) as (
        left,
        right,
    ):
        for number, one in enumerate(simulated):
            gpus = [of_size[0] for of_size in one.of_sizes]
            for at, (words, style) in enumerate((("mean", "o-"), ("median", "."), ("90 %", "^:"))):
                left.plot(gpus, [of_size[1 + at] for of_size in one.of_sizes], style,
                          color=f"C{number}", lw=1, label=f"{one.name}, {words}")  # fmt: skip
        for number, cluster in enumerate(dict.fromkeys(point.cluster for point in real)):
            mine = [point for point in real if point.cluster == cluster]
            left.plot([point.gpus for point in mine], [point.mean_s for point in mine], "D",
                      color=f"C{len(simulated) + number}", mec="black",
                      label=f"{cluster}, published mean")  # fmt: skip
        left.set(xscale="log", yscale="symlog", xlabel="GPUs of a job, from here on",
                 ylabel="first wait, s", title="simulated and published, by size")  # fmt: skip
        sizes = sorted({of_size[0] for one in simulated for of_size in one.of_sizes})
        left.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
        left.minorticks_off()
        left.legend(fontsize=7, loc="upper left")
        clusters = [*simulated, *published]
        places = range(len(clusters))
        right.plot(places, [one.mean_s for one in clusters], "ko", label="mean")
        right.plot(places, [one.median_s for one in clusters], "k.", mfc="white", label="median")
        right.set_xticks(places, [one.name for one in clusters], rotation=30)
        right.set(title="all sizes, simulated and published")
        right.legend(fontsize=8)
        for axes in (left, right):
            # room for the legend
            axes.set_ylim(0, 3e6)
            axes.grid(alpha=0.3)


def waits_beside(path: Path, simulated: Sequence[Waits], real: Sequence[RealWait]) -> None:
    """Simulated mean waits by size, those that real clusters publish as diamonds beside them."""
    with saved(path, figsize=(8, 4.2)) as axes:
        for number, one in enumerate(simulated):
            gpus = [of_size[0] for of_size in one.of_sizes]
            axes.plot(gpus, [of_size[1] for of_size in one.of_sizes], "o-", color=f"C{number}",
                      lw=1, label=f"{one.name}, simulated")  # fmt: skip
            mine = [point for point in real if point.scenario == one.name]
            if mine:
                axes.plot([point.gpus for point in mine], [point.mean_s for point in mine], "D",
                          color=f"C{number}", ms=9, mec="black",
                          label=f"{mine[0].cluster}, published")  # fmt: skip
        sizes = sorted({of_size[0] for one in simulated for of_size in one.of_sizes})
        axes.set(xscale="log", yscale="symlog", xlabel="GPUs of a job, from here on",
                 ylabel="mean first wait, s")  # fmt: skip
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
        axes.minorticks_off()
        highest_s = max(of_size[1] for one in simulated for of_size in one.of_sizes)
        axes.set_ylim(0, 3 * highest_s)
        axes.legend(fontsize=8, ncols=2)
        axes.grid(alpha=0.3)
