"""`--anonymise`: unique words are planted in every name and text, and none comes out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.program import Done, ettr

SACCT = """\
Cluster|JobID|JobName|User|Account|Partition|QOS|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES|WorkDir|Comment|SubmitLine|Reason|Dependency
zqxvcluster|770001|zqxvname|zqxvuser|zqxvaccount|zqxvpart|zqxvqos|NODE_FAIL|0:0|2026-03-01T00:00:00|2026-03-01T00:10:00|2026-03-01T12:00:00|42600|2|zqxvn[1-2]|gres/gpu=16|/zqxvdir/a|zqxvcomment 770001|sbatch --export=A=zqxvtoken zqxvscript.sh|zqxvreason|afterany:770009
zqxvcluster|770002_7|zqxvname2|zqxvuser2|zqxvaccount|zqxvpart|zqxvqos|FAILED|1:0|2026-03-01T00:00:00|2026-03-01T00:10:00|2026-03-01T13:00:00|46200|1|zqxvn3|gres/gpu=8|/zqxvdir/b||sbatch zqxvscript.sh||
zqxvcluster|770003|zqxvname3|zqxvuser2|zqxvaccount|zqxvpart|zqxvqos|CANCELLED by 998877|0:0|2026-03-01T13:10:00|2026-03-01T13:10:00|2026-03-01T14:00:00|3000|1|zqxvn3|gres/gpu=8|/zqxvdir/b||||
"""  # noqa: E501
KERNEL = """\
2026-03-01T11:59:30+00:00 zqxvn1.zqxvdomain.example kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=99123, name=zqxvprogram, GPU has fallen off the bus.
2026-03-01T12:59:30+00:00 zqxvn3 kernel: nfs: server zqxvserver.zqxvdomain.example not responding, timed out
2026-03-01T12:59:31+00:00 zqxvn3 kernel: NVRM: Xid (PCI:0000:3b:00): 94, pid=99123, name=zqxvprogram, Contained: zqxvserial 10.11.12.13 GPU-zqxva1-b2c3
"""  # noqa: E501
EVENTS = """\
Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
zqxvcluster|zqxvn1|2026-03-01T12:00:00|2026-03-01T18:00:00|DOWN*|Not responding|slurm(1)
zqxvcluster|zqxvn3|2026-03-01T13:00:00|2026-03-01T16:00:00|DRAIN|zqxvperson: nvlink error on zqxvn3 for zqxvuser, ticket ZQXV-4711, job 770002|zqxvadmin(5)
"""  # noqa: E501
NODES = """\
NodeName=zqxvn1 Arch=x86_64 CPUTot=8 Gres=gpu:h100:8
   NodeAddr=10.11.12.99 NodeHostName=zqxvhost.zqxvdomain.example
   State=IDLE RealMemory=1000 Partitions=zqxvpart,zqxvother
"""
TOPOLOGY = "SwitchName=zqxvleaf Nodes=zqxvn[1-3]\nSwitchName=zqxvspine Switches=zqxvleaf\n"
# numbers name a job, a process, a person, a ticket; digits of hashes and shares are no names
PLANTED = re.compile(
    r"zqxv|(?<![0-9.])(?:77000[0-9]|99123|998877|4711)(?![0-9])|10[.]11[.]12", re.IGNORECASE
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zqxvfolder")
    logs = []
    for name, text in (
        ("zqxvsacct.psv", SACCT),
        ("zqxvkern.log", KERNEL),
        ("zqxvevents.psv", EVENTS),
        ("zqxvnodes.txt", NODES),
        ("zqxvtopology.conf", TOPOLOGY),
    ):
        logs.append(folder / name)
        logs[-1].write_text(text)
    (folder / "key").write_bytes(b"k" * 32)
    (folder / "key2").write_bytes(b"m" * 32)
    done = ettr("ingest", folder / "st", *logs, "--timezone", "UTC", "--cluster", "zqxvcluster")
    assert done.code == 0, done.err
    return folder


def leaks(text: str, *given: Path) -> list[str]:
    """Lines with a planted word, but for the names of files that the command was given."""
    for one in given:
        text = text.replace(str(one), "")
    # the chart library is the same in every page, and packed
    text = re.sub('<script type="text/plain" id="library">[^<]*</script>', "", text)
    return [line for line in text.splitlines() if PLANTED.search(line)]


@pytest.fixture(scope="module")
def masked(place: Path) -> Done:
    return ettr("report", place / "st", "--json", "--anonymise", place / "key")


def test_printed_answers_hold_no_planted_word(place: Path, masked: Done) -> None:
    key = ("--anonymise", place / "key")
    assert leaks(masked.out + masked.err) == []
    for words in (
        ("timeline", place / "st", "--json"),
        ("timeline", place / "st", "--csv", "--user", "zqxvuser", "--node", "zqxvn[1-2]"),
        ("lemons", place / "st", "--json"),
        ("lemons", place / "st", "zqxvn1", "--csv"),
    ):
        done = ettr(*words, *key)
        assert done.code == 0, done.err
        assert done.out.strip()
        assert leaks(done.out + done.err) == [], words


def test_pages_hold_no_planted_word(place: Path, tmp_path: Path) -> None:
    for name, words in (("report", ()), ("timeline", ()), ("lemons", ("zqxvn1",))):
        page = tmp_path / f"{name}.html"
        done = ettr(name, place / "st", *words, "--anonymise", place / "key", "-o", page)
        assert done.code == 0, done.err
        files = [path.read_text() for path in tmp_path.glob(f"{name}.*")]
        assert leaks("\n".join([*files, done.out, done.err]), page, page.with_suffix(".json")) == []


def test_exported_tables_hold_no_planted_word(place: Path, tmp_path: Path) -> None:
    done = ettr(
        *("export", place / "st", "--to", tmp_path / "{table}.csv", "--anonymise", place / "key")
    )
    assert done.code == 0, done.err
    files = {path.stem: path.read_text() for path in tmp_path.glob("*.csv")}
    assert {"attempts", "events", "node_states", "failures", "files"} <= files.keys()
    for name, text in files.items():
        assert leaks(text) == [], name
    assert "afterany:" in files["attempts"]
    assert "nvlink error on node-" in files["node_states"]
    assert "Xid (PCI:0000:3b:00): 79" in files["events"]


def test_figures_are_those_of_the_names(place: Path, masked: Done) -> None:
    done = ettr("report", place / "st", "--json")
    assert "zqxvn1" in done.out
    plain, masked = done.json, masked.json
    for part in ("failures", "mttf", "status", "goodput", "faults", "runs"):
        if part in plain:
            assert numbers(plain[part]) == numbers(masked[part]), part
    assert numbers(plain["failures"])


def numbers(value: object) -> list[object]:
    """Numbers of a document in the order of its keys; lists in the order of their numbers."""
    if isinstance(value, dict):
        return [one for key in sorted(value) for one in numbers(value[key])]
    if isinstance(value, list):
        return sorted((numbers(one) for one in value), key=repr)
    return [value] if isinstance(value, int | float) else []


def test_pseudonyms_are_stable_and_of_their_key(place: Path) -> None:
    def nodes(key: str) -> set[str]:
        done = ettr("timeline", place / "st", "--anonymise", place / key, "--json")
        return {one["node"] for one in done.json["nodes"]}

    assert nodes("key") == nodes("key")
    assert len(nodes("key")) == 3
    assert not nodes("key") & nodes("key2")


def test_a_key_that_is_short_or_missing_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abc")
    for name in ("short", "none"):
        done = ettr("report", place / "st", "--json", "--anonymise", tmp_path / name)
        assert done.code == 2
        assert "head -c 32 /dev/urandom" in done.err
    assert json.dumps(done.out) == '""'
