"""`ettr simulate`: a whole cluster from a scenario file, into a store like any other.

`fit` makes the scenario from a store; `backtest` tries it by held-back logs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli.output import (
    FiledPrinting,
    PageFile,
    Printing,
    check_writable,
    complain,
    complain_of_selection,
    progress_bar,
    say,
    say_selection,
)
from ettr.cli.selecting import Pricing
from ettr.errors import UsageError
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.plan.cost import Price
    from ettr.sim.cluster.run import SimulatedStore
    from ettr.sim.cluster.scenario import ClusterScenario
    from ettr.sim.cluster.whatif import AssumptionSensitivity, WhatIf
    from ettr.sim.cluster.workload import Replay


def fit(
    store: str, out: Path | None, until: str | None, hold_back: float | None, printing: Printing
) -> None:
    """Write a scenario fitted to a store."""
    from ettr.analysis import Analysis
    from ettr.analysis.calibration.fit import fit_site
    from ettr.files import write_text
    from ettr.report.rows import plain, plain_fields
    from ettr.report.section import section_text
    from ettr.report.sections.what_if import fit_section
    from ettr.sim.cluster.scenario import scenario_of
    from ettr.sim.cluster.standing import standing_of
    from ettr.store import open_store

    if out is None:
        raise UsageError("simulate fit: give a file for the scenario with --out SCENARIO.toml")
    if until is not None and hold_back is not None:
        raise UsageError("--until and --hold-back both set where the fit ends; give one of them")
    check_writable("--out", out)
    with open_store(store) as opened:
        analysis = Analysis(opened)
        end = _day(until) if until is not None else None
        if hold_back is not None:
            end = held_back(analysis, hold_back)
        found, head = fit_site(analysis, _name_of(store), end), analysis.selection_head
    write_text(out, found.text)
    fields = plain_fields(replace(found, text=""))
    document = {key: value for key, value in fields.items() if key not in ("text", "scenario")}
    document["standing"] = plain_fields(standing_of(scenario_of(found.text)))
    selection = {"selection": plain(head)}
    if printing.csv:
        complain_of_selection(head)
    if not printing.summary({"format": "ettr-simulate-fit", "version": 1, **selection, **document}):
        say_selection(head)
        say(section_text(fit_section(found)))
        say(f"\nScenario: {out}")


def backtest(
    what: str,
    store: str | None,
    hold_back: float | None,
    out: Path | None,
    replicas: int | None,
    workers: int | None,
    backend: str | None,
    seed: int,
    page: PageFile,
    printing: Printing,
) -> None:
    """Judge a scenario, or a fit to the first part of a store, by the last part."""
    from ettr.analysis import Analysis
    from ettr.analysis.calibration.back_test import REPLICAS, back_test
    from ettr.analysis.calibration.fit import fit_site
    from ettr.analysis.calibration.record import site_record
    from ettr.files import write_text
    from ettr.report.sections.what_if import back_test_section
    from ettr.sim.cluster.scenario import scenario_of, scenario_text, with_validation
    from ettr.sim.compiled import on_backend
    from ettr.store import open_store

    if hold_back is None:
        raise UsageError("simulate backtest: give the days to hold back with --hold-back")
    if out is not None:
        check_writable("--out", out)
    text = name = None
    if store is not None:
        text, name = scenario_text(what)
    site, n = store or what, replicas or REPLICAS
    with (
        open_store(site) as opened,
        on_backend(backend),
        simulating_bar(n, "simulations") as advance,
    ):
        analysis = Analysis(opened)
        split, head = held_back(analysis, hold_back), analysis.selection_head
        not_fitted: tuple[str, ...] = ()
        notes: tuple[str, ...] = ()
        if text is None:
            fitted = fit_site(analysis, _name_of(site), split)
            text, name, not_fitted, notes = (
                fitted.text,
                f"{_name_of(site)}.toml",
                fitted.not_fitted,
                fitted.notes,
            )
        made = scenario_of(text, name or "scenario")
        found = back_test(
            made,
            site_record(analysis),
            _name_of(site),
            split,
            analysis.logs_period.end,
            replicas=n,
            seed=seed,
            workers=workers or 1,
            progress=lambda done: advance(made.name, done),
            simulated=head.simulated,
        )
    found = replace(found, not_fitted=not_fitted, notes=(*found.notes, *notes))
    if out is not None:
        write_text(out, with_validation(text, found.validation))
    printing.show("ettr-simulate-backtest", found, back_test_section, "quantities", head)
    reality = "Simulated twice" if head.simulated else "Simulated and real"
    title = f"{reality}: back-test of {found.scenario}"
    page.write(back_test_section(found), title, None, head, printing)
    if printing.as_text:
        kept = f"Scenario with its verdict: {out}" if out else "Keep the verdict with --out FILE"
        say(f"\n{kept}")


def waits_page(
    scenario: ClusterScenario,
    replay: Replay,
    seed: int,
    site: str,
    store: str,
    page: PageFile,
    printing: Printing,
) -> None:
    """Write a page of the waits of a replay next to the real ones, if one is asked for.

    Args:
        scenario: that was simulated.
        replay: what was replayed.
        seed: of the simulation.
        site: the store with the real jobs.
        store: what the simulation wrote.
        page: where to.
        printing: how the command prints.
    """
    if page.html is None:
        return
    from ettr.analysis import Analysis
    from ettr.analysis.calibration.back_test import replayed_waits
    from ettr.report.sections.what_if import replayed_waits_section
    from ettr.sim.cluster.standing import standing_of
    from ettr.store import open_store

    with open_store(site) as real, open_store(store) as simulated:
        analysis = Analysis(real)
        waits, head = replayed_waits(analysis, Analysis(simulated)), analysis.selection_head
    section = replayed_waits_section(waits, scenario.name, _name_of(site), seed, head.simulated)
    title = "Waits of two simulations" if head.simulated else "Simulated and real waits"
    title = f"{title}: {scenario.name}"
    page.write(section, title, None, head, printing, standing_of(scenario, replay.what).sentence)


def replayed(
    scenario: ClusterScenario, jobs_from: str | None, faults_from: str | None
) -> tuple[ClusterScenario, Replay]:
    """The scenario for the period of what is replayed, and that; all is drawn without stores."""
    from ettr.analysis import Analysis
    from ettr.analysis.calibration.replay import replay_of
    from ettr.sim.cluster.workload import DRAWN
    from ettr.store import open_store

    if jobs_from is None and faults_from is None:
        return scenario, DRAWN
    with ExitStack() as stack:
        opened = {
            where: Analysis(stack.enter_context(open_store(where)))
            for where in (jobs_from, faults_from)
            if where is not None
        }
        jobs = opened[jobs_from] if jobs_from is not None else None
        faults = opened[faults_from] if faults_from is not None else None
        return replay_of(scenario, jobs, faults)


def held_back(analysis: Analysis, days: float) -> datetime:
    """The midnight UTC from which so many days of the logs are held back."""
    if not (math.isfinite(days) and days >= 1.0):
        raise UsageError(f"--hold-back {days:g}: give 1 day or more")
    try:
        begin = analysis.logs_period.end - timedelta(days=days)
    except OverflowError:
        raise UsageError(f"--hold-back {days:g}: is longer than any log; give fewer days") from None
    return datetime.combine(begin.astimezone(UTC).date(), time(), UTC)


def _day(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise UsageError(f"--until {text!r}: is not a day; write it as 2026-01-05") from None


def _name_of(store: str) -> str:
    """What a store is called in a scenario."""
    last = store.rstrip("/").rsplit("/", 1)[-1].removesuffix(".duckdb")
    printable = "".join(one for one in last if one.isprintable())
    return printable or "site"


COMPILING = "compiling the loop: about half a minute"
KEPT = ", kept for later runs"


@contextmanager
def simulating_bar(total: int, unit: str) -> Iterator[Callable[[str, int], None]]:
    """As `progress_bar`; it says that a loop is compiled, which has no progress of its own."""
    from ettr.sim.compiled import compile_noticed

    done_so_far = 0
    with progress_bar(total, unit) as advance:

        def advance_and_count(what: str, done: int) -> None:
            nonlocal done_so_far
            done_so_far = done
            advance(what, done)

        def say_compiling(is_kept: bool) -> None:
            advance(COMPILING + (KEPT if is_kept else ""), done_so_far)

        with compile_noticed(say_compiling):
            yield advance_and_count


_RUNS = 10
_SENSITIVITY_RUNS = 5
_FLAGS = {
    "store": "--store",
    "truth": "--truth",
    "changes": "--set",
    "runs": "--runs",
    "price": "--gpu-hour-price",
    "jobs_from": "--jobs-from",
    "faults_from": "--faults-from",
    "out": "--out",
    "until": "--until",
    "hold_back": "--hold-back",
    "replicas": "--replicas",
    "workers": "--workers",
    "backend": "--backend",
    "vary": "--vary",
    "sensitivity": "--sensitivity",
    "html": "--html",
}


class SimulateAction(StrEnum):
    """What to do with a scenario."""

    RUN = "run"
    SHOW = "show"
    WHATIF = "whatif"
    FIT = "fit"
    BACKTEST = "backtest"
    SENSITIVITY = "sensitivity"


def simulate(
    action: Annotated[
        SimulateAction,
        typer.Argument(
            metavar="run | show | whatif | sensitivity | fit | backtest",
            help="Simulate it, print the file, compare it with changes of it, vary what it "
            "assumes; fit one to a STORE, or judge it by days that were held back.",
        ),
    ],
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A TOML file, or one that is shipped: rsc-1-like, rsc-2-like, seren-like, "
            "kalos-like, philly-like, small. For fit a STORE; for backtest either.",
        ),
    ],
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help="For run, a new store for the tables: a folder, .duckdb, URL; for backtest of a "
            "scenario, the site's.",
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
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="For whatif, a change: lemons.share=0, faults.infiniband.repair_mean_s=x0.5; "
            "repeatable, each change is ranked.",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            metavar="N",
            min=3,
            max=1000,
            help="Seeds of each scenario: for whatif 10 if absent, for sensitivity 5; for run with "
            "--sensitivity 5.",
        ),
    ] = None,
    jobs_from: Annotated[
        str | None,
        typer.Option(
            "--jobs-from",
            metavar="STORE",
            help="For run and whatif: replay the jobs of a site's store instead of drawing them.",
        ),
    ] = None,
    faults_from: Annotated[
        str | None,
        typer.Option(
            "--faults-from",
            metavar="STORE",
            help="For run and whatif: replay the faults of a site's nodes and their repairs.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.toml",
            help="For fit and backtest: write the scenario, after backtest with its verdict.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="DATE", help="For fit: leave out what came later."),
    ] = None,
    hold_back: Annotated[
        float | None,
        typer.Option(
            "--hold-back", metavar="DAYS", help="For fit and backtest: days at the end of the logs."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            metavar="N",
            min=8,
            max=1000,
            help="For backtest, simulations; 30 if absent.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            max=4096,
            help="For whatif, sensitivity, backtest: simulations at once; 1 if absent.",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="NAME",
            help="With --workers 2 or more: where they run, loky (processes here, if absent), "
            "dask or ray.",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="PATTERN",
            help="For sensitivity: only such values, faults.* or checkpoints.interval_s; "
            "repeatable.",
        ),
    ] = None,
    varied: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="For run and whatif: say which assumed values move the answer most, each halved "
            "and made half larger; with --vary, --runs and --workers.",
        ),
    ] = False,
    *,
    pricing: Pricing,
    page: PageFile,
    printing: FiledPrinting,
) -> None:
    """Simulate a cluster: its jobs, scheduler, faults, health checks and repairs.

    It writes the tables that logs of a real cluster become, so that every other command reads
    them; each report of such a store says first that it is simulated. `fit` writes a scenario from
    a site's own logs, and `backtest` says whether it predicts the last days of them.
    """
    from ettr.report.rows import plain_fields
    from ettr.sim.cluster.scenario import scenario_of, scenario_text
    from ettr.sim.cluster.standing import standing_lines, standing_of

    price = pricing.price()
    _refuse_idle(
        action,
        store=store,
        truth=truth,
        changes=changes,
        runs=runs,
        price=price,
        jobs_from=jobs_from,
        faults_from=faults_from,
        out=out,
        until=until,
        hold_back=hold_back,
        replicas=replicas,
        workers=workers,
        backend=backend,
        vary=vary,
        html=page.html,
        sensitivity=varied or None,
    )
    page.check()
    if action is SimulateAction.FIT:
        fit(scenario, out, until, hold_back, printing)
        return
    if action is SimulateAction.BACKTEST:
        backtest(scenario, store, hold_back, out, replicas, workers, backend, seed, page, printing)
        return
    text, name = scenario_text(scenario)
    made = scenario_of(text, name)
    if action is SimulateAction.SHOW:
        standing = plain_fields(standing_of(made))
        if not printing.summary({"name": made.name, "text": text, "standing": standing}):
            say(text.rstrip())
            for line in standing_lines(standing_of(made)):
                say(f"# {line}")
        return
    made, replay = replayed(made, jobs_from, faults_from)
    n_seeds = runs or (_RUNS if action is SimulateAction.WHATIF else _SENSITIVITY_RUNS)
    seeds = range(seed, seed + n_seeds)
    question = _Question(seeds, tuple(vary or ("*",)), workers or 1, backend)
    if action is SimulateAction.WHATIF:
        _what_if(made, changes or [], price, replay, question, varied, page, printing)
    elif action is SimulateAction.SENSITIVITY:
        _sensitivity(made, replay, question, page, printing)
    else:
        _run(made, text, name, store, truth, seed, replay, printing, question if varied else None)
        if jobs_from is not None and store is not None:
            waits_page(made, replay, seed, jobs_from, store, page, printing)


def _refuse_idle(action: SimulateAction, **typed: object) -> None:
    """Refuse options that the action has no use for, and a lack of those that it needs."""
    sweeping = ("runs", "workers", "backend", "jobs_from", "faults_from")
    uses = {
        SimulateAction.RUN: ("store", "truth", "jobs_from", "faults_from", "html"),
        SimulateAction.SHOW: (),
        SimulateAction.WHATIF: ("changes", "price", "html", *sweeping),
        SimulateAction.SENSITIVITY: ("vary", "html", *sweeping),
        SimulateAction.FIT: ("out", "until", "hold_back"),
        SimulateAction.BACKTEST: (
            "store",
            "out",
            "hold_back",
            "replicas",
            "workers",
            "backend",
            "html",
        ),
    }[action]
    with_sensitivity = {
        SimulateAction.RUN: ("sensitivity", "vary", "runs", "workers", "backend"),
        SimulateAction.WHATIF: ("sensitivity", "vary"),
    }.get(action, ())
    if typed["sensitivity"] is not None:
        uses = (*uses, *with_sensitivity)
    idle = [name for name, value in typed.items() if value is not None and name not in uses]
    if idle:
        flags = ", ".join(_FLAGS[name] for name in idle)
        if set(idle) <= set(with_sensitivity):
            raise UsageError(
                f"{flags}: simulate {action} has a use for it only with --sensitivity; give that "
                "too, or leave it out"
            )
        raise UsageError(f"{flags}: simulate {action} has no use for it; leave it out")
    if typed["backend"] is not None and (typed["workers"] or 1) == 1:  # one runs in this process
        raise UsageError(
            f"--backend {typed['backend']}: runs simulations of several workers; say of how many "
            "with --workers, 2 or more"
        )
    if action is SimulateAction.RUN and typed["html"] is not None and typed["jobs_from"] is None:
        raise UsageError(
            "--html: simulate run draws waits next to the real ones; give the store that has them "
            "with --jobs-from"
        )
    if action is SimulateAction.WHATIF and not typed["changes"]:
        raise UsageError("simulate whatif: give a change with --set, such as --set lemons.share=0")


def _what_if(
    made: ClusterScenario,
    changes: list[str],
    price: Price | None,
    replay: Replay,
    question: _Question,
    varied: bool,
    page: PageFile,
    printing: Printing,
) -> None:
    """Compare changes; if assumed values are varied, with what that owes to them."""
    from ettr.report.rows import priced
    from ettr.report.sections.what_if import varied_what_if_section
    from ettr.sim.cluster.whatif import effect_plan, effect_sensitivity, what_if, with_effects
    from ettr.sim.compiled import on_backend

    plan = effect_plan(made, changes, question.patterns, replay) if varied else None
    seeds, workers, own = question.seeds, question.workers, None
    with on_backend(question.backend):
        with simulating_bar(len(seeds) * (1 + len(changes)), "runs") as advance:
            found = what_if(
                made,
                changes,
                seeds,
                lambda done: advance(made.name, done),
                replay=replay,
                workers=workers,
            )
        if plan is not None:
            n = plan.simulations(len(seeds))
            _say_size(n, len(seeds), len(plan.varied))
            with simulating_bar(n, "runs") as advance:
                own = effect_sensitivity(
                    plan,
                    seeds,
                    workers=workers,
                    replay=replay,
                    progress=lambda done: advance("sensitivity", done),
                )
    shown = with_effects(found, own)
    printing.show("ettr-what-if", shown, varied_what_if_section, "interventions", price=price)
    _complain_of_standing(found, printing)
    section = priced(varied_what_if_section(shown, price), price)
    title, standing = f"Simulated: what if, {made.name}", found.standing.sentence
    page.write(section, title, found.confidence, None, printing, standing)


def _sensitivity(
    made: ClusterScenario,
    replay: Replay,
    question: _Question,
    page: PageFile,
    printing: Printing,
) -> None:
    from ettr.report.sections.what_if import sensitivity_section
    from ettr.sim.compiled import on_backend

    with on_backend(question.backend):
        found = _swept(made, replay, question, made.name)
    printing.show("ettr-sensitivity", found, sensitivity_section, "effects")
    _complain_of_standing(found, printing)
    title, standing = f"Simulated: sensitivity of {made.name}", found.standing.sentence
    page.write(sensitivity_section(found), title, found.confidence, None, printing, standing)


def _complain_of_standing(found: WhatIf | AssumptionSensitivity, printing: Printing) -> None:
    """Say next to a CSV, which has a list alone, how far it is to be believed."""
    from ettr.sim.cluster.workload import not_simulated_lines

    if printing.csv:
        complain(f"SIMULATED, no cluster logged this: {found.scenario}. {found.standing.sentence}")
        for line in (*found.warnings, *not_simulated_lines(found.not_simulated)):
            complain(line)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of assumed values, and where it is worked out."""

    seeds: range
    patterns: tuple[str, ...]
    workers: int
    backend: str | None


def _run(
    made: ClusterScenario,
    text: str,
    name: str,
    store: str | None,
    truth: Path | None,
    seed: int,
    replay: Replay,
    printing: Printing,
    question: _Question | None = None,
) -> None:
    """Simulate into a store, and answer a question about the scenario."""
    from ettr.report.rows import plain_fields
    from ettr.sim.cluster.run import check_run, simulate_into
    from ettr.sim.cluster.whatif import n_simulations, no_such_value, varied_values
    from ettr.sim.compiled import on_backend
    from ettr.store import open_store

    if store is None:
        raise UsageError("simulate run: give a new store for the tables with --store STORE")
    folder = truth or _truth_of(store)
    if question is not None:
        varied, not_varied = varied_values(made, question.patterns, replay)
        if not varied:
            raise no_such_value(made, question.patterns, not_varied)
    check_run(made, folder, replay)  # what is refused leaves no empty store
    own = None
    with on_backend(None if question is None else question.backend):
        with simulating_bar(0, "rows") as advance, open_store(store, create=True) as opened:
            found = simulate_into(
                opened,
                made,
                seed,
                text,
                name,
                folder,
                lambda rows: advance(made.name, rows),
                replay,
            )
        if question is not None:
            n = n_simulations(made, question.patterns, len(question.seeds), replay)
            _say_size(n, len(question.seeds), len(varied))
            own = _swept(made, replay, question, "sensitivity")
    document = {"format": "ettr-simulate-run", "version": 1, **plain_fields(found)}
    if own is not None:
        document["sensitivity"] = plain_fields(own)
    if not printing.summary(document):
        _say(found, store, own)


def _truth_of(store: str) -> Path:
    if "://" in store:
        raise UsageError(
            f"--store {store}: a database has no folder next to it; give one for what truly "
            "happened with --truth FOLDER"
        )
    return Path(f"{store.rstrip('/')}-truth")


def _say(found: SimulatedStore, store: str, own: AssumptionSensitivity | None) -> None:
    from ettr.report.numbers import number, percent
    from ettr.report.section import section_text
    from ettr.report.sections.what_if import headlines_section
    from ettr.sim.cluster.standing import standing_lines
    from ettr.sim.cluster.workload import not_simulated_lines

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
        + ("" if own else "; --sensitivity says what the answer owes to them")
    )
    for line in (*found.replayed, *found.warnings):
        say(f"  {line}")
    say(f"  {found.events:,} events, {found.cpu_s:.1f} CPU s, {found.cpu_us_per_event:.0f} µs each")
    for line in (*not_simulated_lines(found.not_simulated), *standing_lines(found.standing)):
        say(f"  {line}")
    say(f"Store: {store}   Truth: {found.truth}")
    if own is not None:
        say(f"\n{section_text(headlines_section(own))}")


def _say_size(n: int, seeds: int, values: int) -> None:
    complain(
        f"sensitivity: {counted(n, 'simulation')}, {counted(values, 'assumed value')} halved and "
        f"made half larger with {counted(seeds, 'seed')}; --vary PATTERN takes fewer values"
    )


def _swept(
    made: ClusterScenario, replay: Replay, question: _Question, what: str
) -> AssumptionSensitivity:
    """What each headline of a scenario owes to the assumed values."""
    from ettr.sim.cluster.whatif import n_simulations, sensitivity

    n = n_simulations(made, question.patterns, len(question.seeds), replay)
    with simulating_bar(n, "runs") as advance:
        return sensitivity(
            made,
            question.seeds,
            patterns=question.patterns,
            workers=question.workers,
            replay=replay,
            progress=lambda done: advance(what, done),
        )
