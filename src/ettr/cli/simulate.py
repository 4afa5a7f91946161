"""`ettr simulate`: a whole cluster from a scenario file, into a store like any other."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli.output import progress_bar, say
from ettr.cli.printing import Printing
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.report.document import JsonValue
    from ettr.sim.cluster.run import SimulatedStore


class Action(StrEnum):
    """What to do with a scenario."""

    RUN = "run"
    SHOW = "show"


def simulate(
    action: Annotated[
        Action, typer.Argument(metavar="run | show", help="Simulate it, or print the file.")
    ],
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A TOML file, or one that is shipped: rsc-1-like, rsc-2-like, small.",
        ),
    ],
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="STORE", help="A new store for the tables: a folder, .duckdb, URL."
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            metavar="FOLDER",
            help="A new folder for what truly happened; STORE-truth if absent.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", min=0, max=2**31, help="The same seed, the same rows."),
    ] = 1,
    *,
    printing: Printing,
) -> None:
    """Simulate a cluster: its jobs, scheduler, faults, health checks and repairs.

    It writes the tables that logs of a real cluster become, so that every other command reads
    them; each report of such a store says first that it is simulated.
    """
    from ettr.sim.cluster.scenario_file import scenario_of, scenario_text

    text, name = scenario_text(scenario)
    made = scenario_of(text, name)
    if action is Action.SHOW:
        if not printing.summary({"name": made.name, "text": text}):
            say(text.rstrip())
        return
    from ettr.sim.cluster.run import simulate_into
    from ettr.store import open_store

    if store is None:
        raise UsageError("simulate run: give a new store for the tables with --store STORE")
    folder = truth or _truth_of(store)
    with progress_bar(0, "rows") as advance, open_store(store, create=True) as opened:
        found = simulate_into(
            opened, made, seed, text, name, folder, lambda rows: advance(made.name, rows)
        )
    if not printing.summary(_document(found)):
        _say(found, store)


def _truth_of(store: str) -> Path:
    if "://" in store:
        raise UsageError(
            f"--store {store}: a database has no folder next to it; give one for what truly "
            "happened with --truth FOLDER"
        )
    return Path(f"{store.rstrip('/')}-truth")


def _document(found: SimulatedStore) -> JsonValue:
    from ettr.report.document import plain_fields

    return {"format": "ettr-simulate-run", "version": 1, **plain_fields(found)}


def _say(found: SimulatedStore, store: str) -> None:
    from ettr.report.numbers import number, percent

    say(
        f"Simulated {found.scenario}: {found.nodes:,} nodes, {found.days:g} days, seed {found.seed}"
    )
    held = percent(found.held_share)
    say(f"  {found.jobs:,} jobs in {found.attempts:,} attempts; jobs held {held} of the GPU-hours")
    say(
        f"  {found.faults:,} faults ended {found.failed_attempts:,} attempts; interruptions lost "
        f"{number(found.lost_gpu_hours)} GPU-hours"
    )
    say(
        f"  {found.assumed} of the {found.values} values of the scenario are assumed "
        f"(ettr simulate show prints them with their sources)"
    )
    say(f"  {found.events:,} events, {found.cpu_s:.1f} CPU s, {found.cpu_us_per_event:.0f} µs each")
    say(f"Store: {store}   Truth: {found.truth}")
