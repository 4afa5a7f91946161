"""The ways to get ettr: the file of hashes, the Containerfile and completion fit the package."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cli.program import PROGRAM

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
HASHES = (ROOT / "requirements-base.txt").read_text("utf-8")
CONTAINER = (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", " ")


def pinned(text: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.]+)", text, re.M)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def closure(names: list[str]) -> set[str]:
    """Packages that an installation of these brings here, by what each says that it requires."""
    seen: set[str] = set()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name not in seen:
            seen.add(name)
            wanted = map(Requirement, requires(name) or [])
            names += [one.name for one in wanted if not one.marker or one.marker.evaluate()]
    return seen


def test_the_file_of_hashes_is_the_base_installation_as_the_tests_run_it():
    constraints = pinned((ROOT / "constraints.txt").read_text("utf-8"))
    base = pinned(HASHES)
    assert closure([Requirement(one).name for one in PROJECT["dependencies"]]) <= base.keys()
    assert {name: constraints[name] for name in base} == base, "python docs/base_files.py"
    for wanted in map(Requirement, PROJECT["dependencies"]):
        assert base[wanted.name.lower()] in wanted.specifier


def test_each_package_has_its_hashes_and_no_address_is_in_the_file():
    parts = re.split(r"^(?=[\w-]+==)", HASHES, flags=re.M)[1:]
    hashed = [re.findall(r"--hash=sha256:([0-9a-f]{64})(?: \\\n|\n)", part) for part in parts]
    assert [part for part, found in zip(parts, hashed, strict=True) if not found] == []
    assert len({one for found in hashed for one in found}) == HASHES.count("--hash=")
    assert not re.search(r"://|\w\.(?:org|com|io|net)\b", HASHES)


def steps(word: str) -> list[str]:
    return re.findall(rf"^{word} (.*)$", CONTAINER, re.M)


def test_the_container_is_built_of_what_is_here_for_a_python_that_is_taken():
    [python] = re.findall(r"^ARG BASE=python:([\d.]+)-slim$", CONTAINER, re.M)
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    copied = [name for step in steps("COPY") if "--from" not in step for name in step.split()[:-1]]
    assert {"pyproject.toml", "src", "requirements-base.txt", *PROJECT["license-files"]} == set(
        copied
    )
    assert all((ROOT / name).exists() for name in copied)
    [installs] = steps("RUN")
    assert "--require-hashes" in installs
    assert "--no-deps ." in installs
    assert steps("ENTRYPOINT") == [f'["{next(iter(PROJECT["scripts"]))}"]']
    [user] = steps("USER")
    assert all(int(part) > 0 for part in user.split(":"))


# `--read-only --tmpfs /tmp`, in a mount namespace of its own
READ_ONLY = """
mount -o remount,bind,ro / && mount -t tmpfs none /tmp || exit 99
"$@" --output /tmp/report.html > /tmp/out 2> /tmp/err || { cat /tmp/err; exit 1; }
stat --format %s /tmp/report.html
touch "$HOME/probe" 2> /tmp/err && exit 98
exit 0
"""


@pytest.mark.slow
def test_a_report_is_written_where_nothing_but_tmp_is_writable():
    logs = ROOT / "examples" / "slurm"
    words = [PROGRAM, "report", *sorted(logs.iterdir()), "--timezone", "UTC"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", *words],
        cwd=logs,
        env={**os.environ, "HOME": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("this machine gives no mount namespace of its own")
    assert done.returncode == 0, done.stdout
    assert int(done.stdout) > 100_000


def test_the_shell_completes_commands():
    done = subprocess.run(
        [PROGRAM],
        env={
            **os.environ,
            "_ETTR_COMPLETE": "complete_bash",
            "COMP_WORDS": "ettr exp",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["explain", "export"]
