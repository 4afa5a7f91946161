"""Which groups of tests this machine has the parts for, and how to get those it lacks."""

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from held_analyses import MEMORY

# How long an example takes says how busy the machine is, and nothing else. Where every group is to
# run, the verdict follows from the code alone: the same examples each time; elsewhere others.
settings.register_profile(
    "ettr",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="ETTR_EVERY_GROUP" in os.environ,
)
settings.load_profile("ettr")


@dataclass(frozen=True)
class Group:
    """Tests that need parts beyond the dev extra."""

    commands: tuple[tuple[str, ...], ...] = ()
    modules: tuple[str, ...] = ()
    root: bool = False
    how: str = ""

    def missing(self) -> list[str]:
        """What the machine lacks for this group; of each tuple of commands one is enough."""
        lacking = [
            " or ".join(names)
            for names in self.commands
            if not any(shutil.which(name, path=SEARCH_PATH) for name in names)
        ]
        lacking += [name for name in self.modules if importlib.util.find_spec(name) is None]
        return lacking + (["root"] if self.root and os.geteuid() != 0 else [])


# Debian keeps daemons where only root's PATH looks
SEARCH_PATH = os.pathsep.join(
    [
        os.environ.get("PATH", ""),
        "/usr/sbin",
        "/sbin",
        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin"))),
    ]
)

GROUPS = {
    "slurm": Group(
        commands=(
            ("slurmctld",),
            ("slurmd",),
            ("slurmdbd",),
            ("mariadbd", "mysqld"),
            ("munged",),
            ("faketime",),
        ),
        root=True,
        how="as root: apt-get install slurm-wlm slurm-wlm-basic-plugins slurm-wlm-mysql-plugin "
        "slurmdbd munge mariadb-server bc faketime",
    ),
    "spark": Group(
        commands=(("java",),),
        modules=("pyspark",),
        how="apt-get install openjdk-17-jre-headless; make setup-all",
    ),
    "postgres": Group(
        commands=(("postgres",), ("initdb",)),
        modules=("psycopg",),
        how="apt-get install postgresql; make setup-all",
    ),
    "browser": Group(
        commands=(("chromium",),),
        modules=("playwright",),
        how="apt-get install chromium fonts-dejavu-core",
    ),
    "torch": Group(modules=("torch", "numpy"), how="make setup-all"),
}


# What takes minutes in one file, so that no worker is left alone with it at the end
FIRST = ("slurm", "spark", "postgres", "torch", "slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose parts are not there; files that wait for services begin."""
    absent = absent_groups()
    left_out = [item for item in items if absent.intersection(groups_of(item))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    ranks: dict[Path, int] = {}
    for item in items:
        rank = min((FIRST.index(name) for name in groups_of(item) if name in FIRST), default=9)
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items.sort(key=lambda item: ranks[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Hold the answers of analyses where tests may share them, fixtures included."""
    MEMORY.allow(item)


def groups_of(item: pytest.Item) -> set[str]:
    """The names of an item's marks."""
    return {mark.name for mark in item.iter_markers()}


def absent_groups() -> set[str]:
    """Groups whose parts this machine lacks."""
    return {name for name, group in GROUPS.items() if group.missing()}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which groups were left out and how to get them."""
    if terminalreporter.config.option.markexpr:
        return  # the call itself chose its groups
    for name in sorted(absent_groups()):
        group = GROUPS[name]
        terminalreporter.write_line(
            f"left out: the tests of group `{name}` (this machine lacks "
            f"{', '.join(group.missing())}). To run them: {group.how}",
            yellow=True,
        )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Under ETTR_EVERY_GROUP a group that was left out is a failure."""
    MEMORY.forget()
    if os.environ.get("ETTR_EVERY_GROUP") and absent_groups() and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
