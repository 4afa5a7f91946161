"""`ettr lemons STORE NODE`: the page for a ticket, from logs that mean harm too."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cli.program import Done, ettr
from ettr.lemons.candidates import onset
from ettr.report.pages import evidence_file

pytestmark = pytest.mark.slow

HEADER = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList"
    "|AllocTRES"
)
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAYS, NODES, BAD, FAILED_DAYS = 28, 30, 7, (15, 17, 18, 20, 22, 23, 25, 26)
"""Node n7 fails its job on each of these days and on no day before."""
HOSTILE = "<script>alert(1)</script>"


def _job(number: int, node: int, day: int) -> str:
    fails = node == BAD and day in FAILED_DAYS
    start, hours = FIRST + timedelta(days=day), 12 if fails else 20
    end = start + timedelta(hours=hours)
    times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (start, start, start, end))
    state = "NODE_FAIL" if fails else "COMPLETED"
    user = HOSTILE if fails else "ann"
    nodes, count = (f"n[{node},30]", 2) if fails and day == 22 else (f"n{node}", 1)
    tres = f"node={count},gres/gpu={8 * count}"
    return f"c|{number}|train|{user}|{state}|0:0|{times}|{3600 * hours}|{count}|{nodes}|{tres}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 30 nodes; one fails half of its jobs of the second fortnight."""
    place = tmp_path_factory.mktemp("evidence")
    jobs = [(node, day) for day in range(DAYS) for node in range(1, NODES + 1)]
    rows = [_job(number, *job) for number, job in enumerate(jobs, 1)]
    (place / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    kernel = [
        f"{FIRST + timedelta(days=day, hours=11, minutes=58):%Y-%m-%dT%H:%M:%S}+00:00 n{BAD} "
        f"kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name={HOSTILE}, GPU has fallen off "
        "the bus."
        for day in FAILED_DAYS[:-1]
    ]
    stamp = f"{FIRST + timedelta(days=15, hours=11, minutes=57):%Y-%m-%dT%H:%M:%S}+00:00 n{BAD}"
    kernel[:0] = [
        f"{stamp} kernel: NVRM: GPU at PCI:0000:3b:00: GPU-3b6ec030-0000-1847-e155-79f635584b4e",
        f"{stamp} kernel: NVRM: GPU Board Serial Number: 1650000000000",
    ]
    (place / "kernel.log").write_text("\n".join(kernel) + "\n", encoding="utf-8")
    down = (
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        f"c|n{BAD}|2026-03-16T12:00:00|2026-03-16T18:00:00|DOWN*|{HOSTILE}|slurm(64030)\n"
    )
    (place / "events.psv").write_text(down, encoding="utf-8")
    logs = (place / name for name in ("sacct.psv", "kernel.log", "events.psv"))
    done = ettr("ingest", place / "store", *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    return place


@pytest.fixture(scope="module")
def written(folder: Path) -> tuple[Done, Path]:
    page = folder / "n7.html"
    return ettr("lemons", folder / "store", f"n{BAD}", "--output", page), page


def test_the_page_and_its_json_say_what_speaks_against_the_node(written: tuple[Done, Path]):
    done, page = written
    assert done.code == 0, done.err
    assert "Claimed as a lemon" in done.out
    found = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert found["candidate"]["claimed"]
    assert found["candidate"]["expected"] < 1
    own = [job for job in found["jobs"] if job["names"] == f"n{BAD}"]
    assert len(own) == len(FAILED_DAYS)
    # each failed job leads back to its line of the accounting and to the XID before its end
    rows = (page.parent / "sacct.psv").read_text("utf-8").splitlines()
    for job in own:
        assert job["file"] == "sacct.psv"
        assert rows[job["line"] - 1].split("|")[1] == job["job_id"]
    assert sum(line["file"] == "kernel.log" for job in own for line in job["evidence"]) >= 7
    assert found["neighbours"]["nodes"] == 1
    assert found["neighbours"]["failures"] == 0
    assert any(one["code"] == "79" and one["events"] == 7 for one in found["checks"])
    assert len(found["outages"]) == 1


def test_the_vendor_is_asked_for_something_before_the_evidence(written: tuple[Done, Path]):
    page = written[1].read_text("utf-8")
    asked = page.index("Please replace the GPU at 0000:3b:00 (serial 1650000000000) in node n7")
    assert asked < page.index("Probability of being a lemon")
    assert "between 2026-03-01 00:00:00 and 2026-03-01 00:00:00" not in page


def test_the_onset_is_dated(written: tuple[Done, Path]):
    found = json.loads(written[1].with_suffix(".json").read_text("utf-8"))["onset"]
    low, high = (datetime.fromisoformat(found[name]) for name in ("low", "high"))
    assert low <= FIRST + timedelta(days=14) <= high + timedelta(days=1)
    assert low > FIRST + timedelta(days=7)
    assert found["from_start"] < 0.1


def test_nothing_from_a_log_runs_in_the_page(written: tuple[Done, Path]):
    page = written[1].read_text("utf-8")
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page
    # the page's own two: no figures, and what switches the theme
    assert re.findall(r"<script.{0,30}", page) == [
        '<script type="application/json" id="f',
        '<script>"use strict";',
    ]
    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r'(src|href)="(?!#)', page)


def test_a_good_node_is_left_alone(folder: Path):
    found = ettr("lemons", folder / "store", "n3", "--json").json
    assert not found["candidate"]["claimed"]
    assert found["onset"] is None
    assert found["jobs"] == []


def test_the_report_names_the_claimed_node(folder: Path):
    document = ettr("report", folder / "store", "--json").json
    assert [one["node"] for one in document["lemons"]["candidates"] if one["claimed"]] == ["n7"]
    assert any("n7" in step and "ettr lemons STORE" in step for step in document["next_steps"])


def test_without_jobs_nothing_is_judged(folder: Path, tmp_path: Path):
    assert ettr("ingest", tmp_path / "store", folder / "events.psv", "--timezone", "UTC").code == 0
    found = ettr("lemons", tmp_path / "store", "n7", "--json").json
    assert found["candidate"] is None
    assert found["jobs"] is None
    assert len(found["outages"]) == 1
    done = ettr("lemons", tmp_path / "store", "n7", "-o", tmp_path / "n7.html", "--detail")
    assert "not measured" in done.out


def test_where_no_node_failed_there_is_nothing_to_judge_by(tmp_path: Path):
    rows = [_job(number, number, 0) for number in range(1, NODES + 1)]
    (tmp_path / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    assert ettr("ingest", tmp_path / "store", tmp_path / "sacct.psv", "--timezone", "UTC").code == 0
    done = ettr("lemons", tmp_path / "store", "n3", "-o", tmp_path / "n3.html", "--detail")
    assert "none of the 30 nodes" in " ".join(done.out.split())
    assert "probability that it is a lemon is" not in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "x.html"), "name it"),
        (("n7", "--output", "x.pdf"), "ending in .html"),
        (("n7", "--json", "--output", "x.html"), "write no file"),
        (("n77",), "similar names"),
    ],
)
def test_wrong_use_is_explained(folder: Path, words: tuple[str, ...], message: str):
    done = ettr("lemons", folder / "store", *words)
    assert done.code == 2
    assert message in done.err


@pytest.mark.parametrize("node", ["../../etc/passwd", "a/b", "x" * 500, ".hidden", "a\nb", "ü"])
def test_a_file_name_stays_in_its_folder(node: str):
    name = evidence_file("c", node)
    assert re.fullmatch(r"lemon-[A-Za-z0-9._-]{1,100}\.html", name)
    assert name != evidence_file("c", node + "2")


def test_an_onset_in_the_middle_is_told_from_one_at_the_beginning():
    rng = np.random.default_rng(1)
    late, always = np.sort(rng.uniform(14, 28, 8)), np.sort(rng.uniform(0, 28, 8))
    ones = np.ones(8)
    found = onset(late, ones, 28.0, 0.0065)
    assert found.low_days <= 14.0 <= found.high_days + 1
    assert found.from_start < 0.1
    assert onset(always, ones, 28.0, 0.0065).from_start > 0.4


def test_an_onset_needs_a_failure():
    with pytest.raises(ValueError, match="a failure"):
        onset(np.zeros(0), np.zeros(0), 28.0, 0.0065)


def test_the_vendor_is_asked_by_the_fault_and_not_by_what_followed(tmp_path: Path):
    """The reset of the GPU is logged after each uncorrectable error, and once more by itself."""
    lines = [
        f"2026-01-{day:02d}T10:00:{second:02d}+00:00 n1 kernel: amdgpu 0000:68:00.0: {says}\n"
        for day in (2, 4, 6)
        for second, says in (
            (0, "1 uncorrectable hardware errors detected in gfx block"),
            (1, "GPU reset begin!"),
        )
    ]
    again = "2026-01-07T10:00:01+00:00 n1 kernel: amdgpu 0000:68:00.0: GPU reset begin!\n"
    (tmp_path / "kernel.log").write_text("".join([*lines, again]))
    done = ettr("ingest", tmp_path / "store", tmp_path / "kernel.log", "--cluster", "c")
    assert done.code == 0, done.err
    done = ettr("lemons", tmp_path / "store", "n1", "--output", tmp_path / "n1.html")
    assert done.code == 0, done.err
    page = (tmp_path / "n1.html").read_text()
    asked = page[page.index("Please ") :][:200]
    assert "replace the GPU at 0000:68:00 in node n1: kernel amdgpu-ras-uncorrectable" in asked
