"""Whatever a user wrote into a job's name, or a machine into its log, is text in every output."""

from __future__ import annotations

import json
import re
import unicodedata
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.report.html import packed
from ettr.store import open_store
from report.browser import chromium, opened

pytestmark = pytest.mark.slow

SCRIPT = "<script>window.pwned=1;alert(1)</script>"
IMAGE = '"><img src=x onerror="window.pwned=2">'
CLOSER = "</script></title></style><svg onload=window.pwned=3>"
LINK = '<a href="javascript:window.pwned=4">click</a>'
TEMPLATE = "{{ 7*191 }}{% include '/etc/passwd' %}${7*191}"
FORMULA = "=cmd('calc')!A1"
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x9b5n\x08\x08"
BIDI = "abc\u202egnp.exe\u2066\u200b\ufeff"
SEPARATORS = "line\u2028sep\u2029par\x85nel"
PATH = "../../etc/passwd"
ABSOLUTE = "/etc/cron.d/own"
LONG = "n" * 5000

NAMES = (
    SCRIPT,
    IMAGE,
    CLOSER,
    LINK,
    TEMPLATE,
    FORMULA,
    "+1+1",
    "@SUM(1)",
    "-2+3",
    ESCAPES,
    BIDI,
    SEPARATORS,
    PATH,
    LONG,
    "a\u0000b",
    "%s%n%x",
    "'; DROP TABLE attempts; --",
    '"a","b"',
    "\\u003cscript\\u003e",
    "é\u0301́" * 200,
    "🤖" * 100,
)
NODES = (PATH, ABSOLUTE, SCRIPT, IMAGE, "..", ".", "nul\x00byte", ESCAPES, BIDI, "con:1", LONG)


def logs(folder: Path) -> list[Path]:
    stamp = "2026-03-0{}T00:00:00"
    lines = ["Cluster|JobID|JobName|User|State|Submit|Start|End|NNodes|NodeList|AllocTRES|Comment"]
    for number, name in enumerate(NAMES, 1):
        state = "NODE_FAIL" if number % 2 else "COMPLETED"
        lines.append(
            f"c|{number}|{name}|{name[:40]}|{state}|{stamp.format(1)}|{stamp.format(1)}|"
            f"{stamp.format(2)}|1|n{number}|gres/gpu=8|{name}"
        )
    lines += [
        f"c|{100 + number}|j|u|NODE_FAIL|{stamp.format(2)}|{stamp.format(2)}|{stamp.format(3)}|1|"
        f"{node}|gres/gpu=8|"
        for number, node in enumerate(NODES)
    ]
    lines.append(f"{CLOSER}|200|j|u|{SCRIPT}|{IMAGE}|||1|n1||")
    events = ["Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"]
    for node in (*NODES, "n1", "n3"):
        for reason in (SCRIPT, LINK, ESCAPES, FORMULA):
            events.append(f"c|{node}|{stamp.format(2)}|{stamp.format(4)}|DOWN*|{reason}|{BIDI}")
    checks = [
        {
            "time": 1772409600 + n,
            "host": node,
            "node": node,
            "check": name,
            "code": name,
            "severity": "critical",
            "message": name,
        }
        for n, (node, name) in enumerate((node, name) for node in ("n1", *NODES) for name in NAMES)
    ]
    csv = ["time,node,check,code,severity,message,cluster"]
    for check in checks:
        cells = (
            "2026-03-02T00:00:00Z",
            check["node"],
            check["check"],
            check["code"],
            "critical",
            check["message"],
            "c",
        )
        csv.append(",".join('"' + str(cell).replace('"', '""') + '"' for cell in cells))
    files = []
    for name, rows in (
        ("<img src=x onerror=pwned>.psv", lines),
        ("e\x1b[31m.psv", events),
        ("checks.csv", csv),
    ):
        files.append(folder / name)
        files[-1].write_text("\n".join(rows) + "\n", "utf-8", errors="surrogatepass")
    return files


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    jobs, states, checks = logs(folder)
    store = folder / "deep" / "er" / "store"
    store.parent.mkdir(parents=True)
    for words in ((jobs,), (states,), (checks, "--source", "table", "--table", "events")):
        done = ettr("ingest", store, *words, "--timezone", "UTC")
        assert done.code == 0, done.err
        steers_nothing(done.out + done.err)
    return store


@pytest.fixture(scope="module")
def page(hostile: Path) -> Path:
    place = hostile.parent / "report.html"
    done = ettr("report", hostile, "-o", place)
    assert done.code == 0, done.err
    steers_nothing(done.out + done.err)
    return place


def steers_nothing(text: str) -> None:
    """No character of the text moves a cursor, hides, or turns a line around."""
    bad = {
        char
        for char in text
        if char not in "\n\t" and unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
    assert not bad, {f"U+{ord(char):04X}" for char in bad}


class Tags(HTMLParser):
    """Every element of a page with its attributes, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def tags(page: Path) -> Tags:
    parser = Tags()
    parser.feed(page.read_text("utf-8"))
    parser.close()
    return parser


def test_the_pages_only_scripts_are_ours(tags: Tags):
    templates = resources.files("ettr.report") / "templates"
    files = [one for one in templates.iterdir() if one.name.endswith(".js")]
    programs = {*(one.read_text("utf-8").strip() for one in files)}
    scripts = [str(one).strip() for one in tags.scripts]
    data = [one for one in scripts if one not in programs and one != packed()]
    assert len(scripts) - len(data) >= 2
    for one in data:
        assert isinstance(json.loads(one), list)
        assert not re.search(r"[<>&\u2028\u2029]", one)


def test_no_element_of_the_page_came_from_a_log(tags: Tags):
    names = {tag for tag, _ in tags.found}
    assert not names & {"img", "iframe", "object", "embed", "form", "base", "link"}
    # the bars of the first screen, and the filter over the page
    assert sum(tag == "input" for tag, _ in tags.found) <= 1
    assert names & {"svg", "image", "use", "foreignObject", "animate"} <= {"svg"}
    for tag, given in tags.found:
        assert not [name for name in given if name.startswith("on")], (tag, given)
        assert not (given.get("href") or "#").lower().startswith(("javascript", "data", "http"))
        assert "src" not in given


def test_the_page_lets_nothing_be_loaded(page: Path):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page.read_text())
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    assert "http" not in policy[1]
    assert "unsafe" not in policy[1]


def test_a_template_in_a_name_is_not_rendered(page: Path):
    text = page.read_text("utf-8")
    assert "1337" not in text.split("<script>")[0].split("</style>")[1]
    assert "root:x:0" not in text


def test_nothing_in_the_page_reverses_or_hides_text(page: Path):
    text = page.read_text("utf-8")
    steers_nothing(text)
    assert "abc\\u202egnp.exe" in text
    assert LONG[:301] not in text


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_of_it_runs_in_a_browser(page: Path, width: int):
    inside = "document.querySelectorAll('.plot img, .plot script, .plot svg a[href]').length"
    with chromium() as browser, opened(browser, page, width=width) as report:
        assert report.ask("window.pwned") is None
        assert report.said == []
        assert report.asked == [page.as_uri()]
        assert report.ask(inside) == 0
        assert report.ask("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["sizes"],
        ["failures"],
        ["mttf"],
        ["runs"],
        ["goodput"],
        ["nodes"],
        ["quality"],
    ],
    ids=" ".join,
)
def test_text_on_a_terminal_steers_nothing(words: list[str], hostile: Path):
    done = ettr(*words, hostile)
    assert done.code == 0, done.err
    steers_nothing(done.out + done.err)


@pytest.mark.parametrize("job", ["1", "9", "11", "100", "105"])
def test_a_story_steers_nothing(job: str, hostile: Path):
    done = ettr("explain", hostile, job, "--detail")
    assert done.code in {0, 2}
    steers_nothing(done.out + done.err)


def test_errors_steer_nothing(hostile: Path, tmp_path: Path):
    for words in (
        ["explain", hostile, ESCAPES],
        ["report", f"no{ESCAPES}such"],
        ["report", hostile, "--believe", ESCAPES],
        ["ingest", tmp_path / "s", "x", "--source", BIDI],
        [ESCAPES],
        ["report", hostile, f"--{ESCAPES}"],
    ):
        done = ettr(*words)
        assert done.code == 2
        steers_nothing(done.out + done.err)


def test_json_is_plain_ascii_with_every_name_as_it_was(hostile: Path):
    done = ettr("report", hostile, "--json")
    assert done.out.isascii()
    assert "\x1b" not in done.out
    names = {run["name"] for run in done.json["runs"]["runs"]}
    assert {SCRIPT, FORMULA, TEMPLATE} <= names


def test_no_name_becomes_a_path(hostile: Path, page: Path):
    above = {path.name for path in hostile.parents[2].iterdir()}
    assert above == {"deep", "<img src=x onerror=pwned>.psv", "e\x1b[31m.psv", "checks.csv"}
    assert {path.name for path in hostile.parents[1].iterdir()} == {"er"}
    assert {path.name for path in hostile.parent.iterdir()} == {"store", page.name}
    for path in hostile.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9_.\-]{1,80}", path.name), path.name
        assert not path.is_symlink()


def test_every_hostile_record_is_accounted_for(hostile: Path):
    quality = ettr("quality", hostile, "--json").json
    with open_store(hostile) as store:
        kept = {name: store.rows(name).num_rows for name in ("attempts", "events", "node_states")}
    by_source = {file["source"]: file for file in quality["files"]}
    jobs = by_source["slurm-sacct"]
    assert kept["attempts"] == (jobs["rows_read"] - jobs["rows_rejected"] - jobs["rows_skipped"])
    assert kept["attempts"] >= len(NAMES) - 2
