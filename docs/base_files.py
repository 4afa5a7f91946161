"""Write requirements-base.txt: every wheel of the base installation by its hash.

Run: python docs/base_files.py, after a change of the dependencies or of constraints.txt. It asks
pip's index, and keeps nothing that it downloads. The file has no address in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "requirements-base.txt"
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
HEAD = """\
# The base installation of ettr, each wheel by its SHA-256: Linux (glibc 2.28 and later, x86-64 and
# aarch64), Python 3.11 to 3.13. Made by docs/base_files.py.
# pip install --require-hashes --only-binary :all: --requirement requirements-base.txt
"""


def wheels(python: str, machine: str, wanted: list[str]) -> list[tuple[str, str]]:
    """Requirement and SHA-256 of each wheel that pip would install there."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = ["install", "--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
        words += ["--report", str(report), "--target", folder, "--python-version", python]
        words += ["--constraint", str(ROOT / "constraints.txt")]
        words += [word for glibc in GLIBC for word in ("--platform", f"{glibc}_{machine}")]
        subprocess.run([sys.executable, "-m", "pip", *words, *wanted], check=True)
        found = json.loads(report.read_text("utf-8"))["install"]
    return [
        (
            f"{one['metadata']['name'].lower().replace('_', '-')}=={one['metadata']['version']}",
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in found
    ]


def main() -> None:
    """Write the file."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hashes: dict[str, set[str]] = defaultdict(set)
    for python, machine in product(PYTHONS, MACHINES):
        for requirement, digest in wheels(python, machine, settings["project"]["dependencies"]):
            hashes[requirement].add(digest)
    lines = [
        " \\\n    ".join([name, *(f"--hash=sha256:{digest}" for digest in sorted(found))])
        for name, found in sorted(hashes.items())
    ]
    FILE.write_text(HEAD + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
