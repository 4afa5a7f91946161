"""`ettr simulate fit` and `backtest`: a scenario from a store, and its trial by held-back logs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ettr.cli.output import (
    PageFile,
    Printing,
    check_writable,
    complain_of_selection,
    progress_bar,
    say,
    say_selection,
)
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.report.rows import JsonValue
    from ettr.sim.cluster.scenario import ClusterScenario
    from ettr.sim.cluster.standing import ScenarioStanding
    from ettr.sim.cluster.workload import Replay


def fit(
    store: str, out: Path | None, until: str | None, hold_back: float | None, printing: Printing
) -> None:
    """Write a scenario fitted to a store."""
    from ettr.analysis import Analysis
    from ettr.analysis.calibration.fit import fit_site
    from ettr.files import write_text
    from ettr.report.rows import plain, plain_fields
    from ettr.report.sections.what_if import fit_section
    from ettr.report.text import section_text
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
    document["standing"] = plain_fields(_standing(found.text))
    selection = {"selection": plain(head)}
    if printing.csv:
        complain_of_selection(head)
    if not printing.summary({"format": "ettr-simulate-fit", "version": 1, **selection, **document}):
        say_selection(head)
        say(section_text(fit_section(found)))
        say(f"\nScenario: {out}")


def _standing(text: str) -> ScenarioStanding:
    from ettr.sim.cluster.scenario_file import scenario_of
    from ettr.sim.cluster.standing import standing_of

    return standing_of(scenario_of(text))


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
    from ettr.sim.cluster.scenario_file import scenario_of, scenario_text, with_validation
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


def document_of_show(text: str, name: str) -> dict[str, JsonValue]:
    """The document of `ettr simulate show`."""
    from ettr.report.rows import plain_fields
    from ettr.sim.cluster.scenario_file import scenario_of
    from ettr.sim.cluster.standing import standing_of

    made = scenario_of(text, name)
    return {"name": made.name, "text": text, "standing": plain_fields(standing_of(made))}


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
