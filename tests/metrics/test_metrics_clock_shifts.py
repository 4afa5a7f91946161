"""A wrong time zone is never silent: logs that name the same jobs and nodes show the shift."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.store import open_store

pytestmark = pytest.mark.slow

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)  # winter: New York is 5 h behind UTC
JOBS = (11, 12, 13, 14)


def end_of(job: int) -> datetime:
    return NOON + timedelta(hours=3 * (job - 10), minutes=job, seconds=job)


def stamp(moment: datetime, shift_s: float = 0.0) -> str:
    return f"{moment + timedelta(seconds=shift_s):%Y-%m-%dT%H:%M:%S}"


def sacct() -> str:
    head = "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
    rows = [
        f"{job}|j{job}|ann|c|NODE_FAIL|{stamp(NOON)}|{stamp(NOON)}|{stamp(end_of(job))}|"
        f"{(end_of(job) - NOON).total_seconds():.0f}|2|n[{job}-{job + 1}]|gres/gpu=16"
        for job in JOBS
    ]
    return "\n".join((head, *rows)) + "\n"


def controller(shift_s: float = 0.0) -> str:
    return "".join(
        f"[{stamp(end_of(job), shift_s + 2)}.250] Killing JobId={job} on failed node n{job}\n"
        for job in JOBS
    )


def events(shift_s: float = 0.0) -> str:
    head = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
    rows = [
        f"c|n{job}|{stamp(end_of(job), shift_s)}|{stamp(end_of(job), shift_s + 600)}|DOWN*|"
        "Not responding|slurm(64030)"
        for job in JOBS
    ]
    return "\n".join((head, *rows)) + "\n"


def progress(shift_s: float = 0.0, job: int = 14) -> str:
    begin_s, n_steps = NOON.timestamp() + shift_s, int((end_of(job) - NOON).total_seconds() // 60)
    return "".join(
        json.dumps(
            {"v": 1, "run": "r", "cluster": "c", "job": str(job), "rank": 0, "event": "step"}
            | {"time": begin_s + 60 * n, "step": n, "duration_s": 60}
        )
        + "\n"
        for n in range(1, n_steps + 1)
    )


@contextmanager
def site(folder: Path, **texts: tuple[str, str]) -> Iterator[Analysis]:
    """A store of logs, each with the zone that the user says it was written in."""
    for name, (text, zone) in texts.items():
        (folder / name).write_text(text)
        done = ettr("ingest", folder / "store", folder / name, "--timezone", zone)
        assert done.code == 0, done.err
    with open_store(folder / "store") as store:
        yield Analysis(store)


def test_logs_of_one_clock_agree(tmp_path: Path):
    with site(
        tmp_path,
        sacct=(sacct(), "UTC"),
        controller=(controller(), "UTC"),
        events=(events(), "UTC"),
        progress=(progress(), "UTC"),
    ) as made:
        assert made.clock_shifts == ()
        assert made.runs.measured_runs == 1


def test_accounting_read_with_a_wrong_zone_is_named_with_the_right_one(tmp_path: Path):
    """UTC's times read as New York's lie five hours late: everything else seems early."""
    with site(
        tmp_path,
        sacct=(sacct(), "America/New_York"),
        controller=(controller(), "UTC"),
        events=(events(), "UTC"),
        progress=(progress(), "UTC"),
    ) as made:
        shifts = {shift.source: shift for shift in made.clock_shifts}
        assert set(shifts) == {"slurmctld-log", "slurm-events", "progress"}
        for shift in shifts.values():
            assert shift.shift_s == pytest.approx(-5 * 3600, abs=5)
            (fix,) = [each for each in shift.remedies if each.source == "slurm-sacct"]
            assert (fix.timezone, fix.utc_offset_h, fix.zones[0]) == ("America/New_York", 0, "UTC")
        assert (shifts["slurmctld-log"].compared, shifts["slurmctld-log"].agreeing) == (4, 4)
        # progress has no local times, so its own zone cannot be wrong
        assert [fix.source for fix in shifts["progress"].remedies] == ["slurm-sacct"]
        assert made.runs.measured_runs == 0


def test_a_controller_read_with_a_wrong_zone(tmp_path: Path):
    with site(
        tmp_path, sacct=(sacct(), "UTC"), controller=(controller(3600), "Europe/Helsinki")
    ) as made:
        (shift,) = made.clock_shifts
        # written an hour ahead of UTC, read as two hours ahead
        assert shift.shift_s == pytest.approx(-3600, abs=5)
        fixes = {fix.source: fix for fix in shift.remedies}
        assert fixes["slurmctld-log"].utc_offset_h == 1
        assert "Europe/Paris" in fixes["slurmctld-log"].zones


@pytest.mark.parametrize("shift_s", [-47 * 60.0, 200.0, 100_000.0])
def test_a_clock_that_is_off_by_anything(tmp_path: Path, shift_s: float):
    with site(tmp_path, sacct=(sacct(), "UTC"), controller=(controller(shift_s), "UTC")) as made:
        (shift,) = made.clock_shifts
        assert shift.shift_s == pytest.approx(shift_s, abs=5)


def test_ends_that_differ_each_by_its_own_are_no_shift(tmp_path: Path):
    lines = controller().splitlines(keepends=True)
    moved = "".join(
        f"[{stamp(end_of(job), 1000.0 * job * job)}.250]{line.partition(']')[2]}"
        for job, line in zip(JOBS, lines, strict=True)
    )
    with site(tmp_path, sacct=(sacct(), "UTC"), controller=(moved, "UTC")) as made:
        assert made.clock_shifts == ()


def test_one_dump_of_several_is_found_and_named(tmp_path: Path):
    rows = sacct().splitlines(keepends=True)
    with site(
        tmp_path,
        first=("".join(rows[:3]), "UTC"),
        second=("".join((rows[0], *rows[3:])), "Europe/Paris"),
        controller=(controller(), "UTC"),
    ) as made:
        (shift,) = made.clock_shifts
        assert shift.shift_s == pytest.approx(3600, abs=5)
        assert (shift.compared, shift.agreeing) == (4, 2)
        assert shift.files == ("controller", "second")


def test_the_sentence_is_in_ingest_text_page_and_json(tmp_path: Path):
    folder = tmp_path
    (folder / "sacct").write_text(sacct())
    (folder / "controller").write_text(controller(5 * 3600))
    files = (folder / "sacct", folder / "controller")
    done = ettr("ingest", folder / "store", *files, "--timezone", "UTC")
    assert "slurmctld-log is 5.00 h after slurm-sacct" in done.err
    document = ettr("report", folder / "store", "--json").json
    (shift,) = document["quality"]["clocks"]["shifts"]
    assert shift["shift_s"] == pytest.approx(5 * 3600, abs=5)
    page = folder / "report.html"
    done = ettr("report", "--detail", folder / "store", "-o", page)
    words = "slurmctld-log is 5.00 h after slurm-sacct"
    assert words in " ".join(done.out.split())
    assert words in page.read_text()
    assert words in " ".join(ettr("quality", folder / "store", "--detail").out.split())


def test_an_hour_that_occurs_twice_is_no_wrong_clock(tmp_path: Path):
    """The job's runtime says that its end is the second 02:10; of the node nothing says which."""
    job = (
        "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
        "1|j|ann|c|NODE_FAIL|2026-10-25T01:30:00|2026-10-25T01:30:00|2026-10-25T02:10:00|6000|1|"
        "n1|gres/gpu=8\n"
    )
    states = (
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        "c|n1|2026-10-25T02:10:00|2026-10-25T12:00:00|DOWN*|Not responding|slurm(1)\n"
    )
    zone = "Europe/Berlin"
    with site(tmp_path, sacct=(job, zone), events=(states, zone)) as made:
        assert made.clock_shifts == ()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Pacific/Honolulu"])
@pytest.mark.parametrize(
    ("shift_h", "words"), [(24.0, "a date is wrong by 1 day."), (-24.0, "1 day.")]
)
def test_a_single_outage_a_day_away_advises_no_zone_that_does_not_exist(
    tmp_path: Path, zone: str, shift_h: float, words: str
):
    """Zones lie from UTC-12:00 to UTC+14:00."""
    (job, *_), (outage, *_) = (text().splitlines()[1:] for text in (sacct, events))
    heads = [text().splitlines()[0] for text in (sacct, events)]
    day = stamp(end_of(11), shift_h * 3600), stamp(end_of(11), shift_h * 3600 + 600)
    outage = "|".join([*outage.split("|")[:2], *day, *outage.split("|")[4:]])
    texts = {"sacct": (f"{heads[0]}\n{job}\n", zone), "events": (f"{heads[1]}\n{outage}\n", zone)}
    with site(tmp_path, **texts) as made:
        (shift,) = made.clock_shifts
        assert all(-12 <= fix.utc_offset_h <= 14 for fix in shift.remedies)
        assert (words in shift.sentence) == (not shift.remedies)
        assert bool(shift.remedies) == (zone == "Pacific/Honolulu")


def test_a_single_job_farther_away_than_any_two_zones_shows_no_shift(tmp_path: Path):
    log = controller(40 * 3600).splitlines(keepends=True)[0]
    with site(tmp_path, sacct=(sacct(), "UTC"), controller=(log, "UTC")) as made:
        assert made.clock_shifts == ()


def test_progress_that_fits_several_zones_is_taken_for_a_whole_hour(tmp_path: Path):
    """The record stops 40 minutes before its job does: 4.5 hours fit as well as the true 5."""
    record = "".join(progress(5 * 3600.0).splitlines(keepends=True)[:-40])
    with site(tmp_path, sacct=(sacct(), "UTC"), progress=(record, "UTC")) as made:
        (shift,) = made.clock_shifts
        assert shift.shift_s == 5 * 3600


def test_progress_that_fits_several_zones_names_none(tmp_path: Path):
    """The record stops 100 minutes before its job does: 4 hours fit as well as the true 5."""
    record = "".join(progress(5 * 3600.0).splitlines(keepends=True)[:-100])
    with site(tmp_path, sacct=(sacct(), "UTC"), progress=(record, "UTC")) as made:
        (shift,) = made.clock_shifts
        assert shift.shift_s is None
        assert (shift.shift_low_s, shift.shift_high_s) == (4 * 3600, 5 * 3600)
        assert shift.remedies == ()
        assert "progress is 4 to 5 h after slurm-sacct" in shift.sentence
        assert "cannot tell which" in shift.sentence
        assert made.runs.measured_runs == 0


def test_the_controller_says_which_of_several_zones_it_is(tmp_path: Path):
    """As above, and the controller's lines of the same jobs lie five hours later too."""
    record = "".join(progress(5 * 3600.0).splitlines(keepends=True)[:-100])
    with site(
        tmp_path,
        sacct=(sacct(), "UTC"),
        controller=(controller(5 * 3600), "UTC"),
        progress=(record, "UTC"),
    ) as made:
        shifts = {shift.source: shift for shift in made.clock_shifts}
        assert shifts["progress"].shift_s == pytest.approx(5 * 3600, abs=5)
        (fix,) = shifts["progress"].remedies
        assert fix.utc_offset_h == -5


def test_records_of_several_files_leave_one_zone_between_them(tmp_path: Path):
    """One stops early, the other begins late: each fits two zones, both together only one."""
    early = "".join(progress(5 * 3600.0, 13).splitlines(keepends=True)[:-100])
    late = "".join(progress(5 * 3600.0, 14).splitlines(keepends=True)[100:])
    late = late.replace('"run": "r"', '"run": "s"')
    with site(tmp_path, sacct=(sacct(), "UTC"), early=(early, "UTC"), late=(late, "UTC")) as made:
        (shift,) = made.clock_shifts
        assert (shift.shift_s, shift.compared, shift.agreeing) == (5 * 3600, 2, 2)


def test_a_job_that_still_runs_bounds_a_shift_on_one_side(tmp_path: Path):
    """Its record begins five hours before it does; how late it may lie nothing says."""
    rows = sacct().splitlines()
    running = rows[1].split("|")
    running[4:9] = ["RUNNING", stamp(NOON), stamp(NOON), "Unknown", "20000"]
    text = "\n".join((rows[0], "|".join(running))) + "\n"
    with site(tmp_path, sacct=(text, "UTC"), progress=(progress(-5 * 3600.0, 11), "UTC")) as made:
        (shift,) = made.clock_shifts
        assert (shift.shift_s, shift.shift_low_s, shift.remedies) == (None, None, ())
        assert shift.shift_high_s == pytest.approx(-5 * 3600, abs=600)
        assert "progress is at least 4.90 h before slurm-sacct" in shift.sentence


def test_jobs_and_nodes_of_one_log_show_its_shift_once(tmp_path: Path):
    lines = controller(5 * 3600).splitlines(keepends=True)
    log = "".join(
        f"{line.split()[0]} error: Nodes n{job} not responding, setting DOWN\n{line}"
        for job, line in zip(JOBS, lines, strict=True)
    )
    with site(tmp_path, sacct=(sacct(), "UTC"), controller=(log, "UTC")) as made:
        (shift,) = made.clock_shifts
        assert shift.source == "slurmctld-log"
        assert shift.shift_s == pytest.approx(5 * 3600, abs=5)


def kernel_site(shift_s: float) -> tuple[str, str]:
    """Twelve nodes whose GPU falls off the bus, and which are drained half a minute later."""
    lines, states = [], ["Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"]
    for n in range(12):
        lost = NOON + timedelta(hours=7.3 * n, seconds=13 * n)
        said = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
        lines.append(f"{stamp(lost, shift_s)} k{n} kernel: {said}\n")
        states.append(f"c|k{n}|{stamp(lost, 20 + n)}|{stamp(lost, 9000)}|DRAIN|check_gpu|root(0)")
    return "".join(lines), "\n".join(states) + "\n"


def test_kernel_messages_hours_before_their_nodes_are_drained_are_told(tmp_path: Path):
    lines, states = kernel_site(-5 * 3600)
    with site(
        tmp_path, **{"sacct": (sacct(), "UTC"), "ev.psv": (states, "UTC"), "kern": (lines, "UTC")}
    ) as made:
        (shift,) = made.clock_shifts
        assert (shift.source, shift.against) == ("kernel-xid", "slurm-events")
        assert (shift.agreeing, shift.compared) == (12, 12)
        assert shift.shift_s == pytest.approx(-5 * 3600, abs=60)
        assert "5.01 h before" in shift.sentence
        assert "America/New_York" in shift.sentence


def test_kernel_messages_of_one_clock_with_the_drains_show_none(tmp_path: Path):
    lines, states = kernel_site(0)
    with site(
        tmp_path, **{"sacct": (sacct(), "UTC"), "ev.psv": (states, "UTC"), "kern": (lines, "UTC")}
    ) as made:
        assert made.clock_shifts == ()


def local_kernel(zone: str, between: timedelta) -> tuple[str, str]:
    """Twelve XIDs in a zone's local time, six before its clocks change and six after."""
    lines, states = [], ["Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"]
    change = datetime(2026, 10, 25, 1, tzinfo=UTC)  # in Europe
    for n in range(12):
        lost = change + between * (n - 5.5) + timedelta(seconds=13 * n)
        said = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
        lines.append(f"{stamp(lost.astimezone(ZoneInfo(zone)))} k{n} kernel: {said}\n")
        states.append(f"c|k{n}|{stamp(lost, 20 + n)}|{stamp(lost, 9000)}|DRAIN|check_gpu|root(0)")
    return "".join(lines), "\n".join(states) + "\n"


@pytest.mark.parametrize(
    ("zone", "shifts_h"), [("Europe/Zurich", {2: 6, 1: 6}), ("Europe/London", {1: 6})]
)
def test_a_log_in_local_time_over_a_change_of_clocks_is_told(
    tmp_path: Path, zone: str, shifts_h: dict[int, int]
):
    """Read as UTC, all of it: an hour less is wrong in winter, and in London nothing."""
    lines, states = local_kernel(zone, timedelta(days=8))
    with site(
        tmp_path, **{"sacct": (sacct(), "UTC"), "ev.psv": (states, "UTC"), "kern": (lines, "UTC")}
    ) as made:
        found = made.clock_shifts
        assert {round((one.shift_s or 0) / 3600): one.agreeing for one in found} == shifts_h
        assert {(one.source, one.compared) for one in found} == {("kernel-xid", 12)}
        assert all(
            (zone if zone.endswith("London") else "Europe/Paris") in one.sentence for one in found
        )


def test_a_log_read_in_its_own_zone_over_a_change_of_clocks_shows_none(tmp_path: Path):
    lines, states = local_kernel("Europe/Zurich", timedelta(days=8))
    with site(
        tmp_path,
        **{"sacct": (sacct(), "UTC"), "ev.psv": (states, "UTC"), "kern": (lines, "Europe/Zurich")},
    ) as made:
        assert made.clock_shifts == ()
