"""Which groups of tests this machine has the parts for, and how to get those it lacks."""

import gc
import importlib.util
import os
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from cpu_seconds import START, Figures, cpu_s, group_of, largest_mb, room_of
from held_analyses import MEMORY
from lanes import LANES, lane_of
from readable import hold_findings

# What is loaded and collected stays: to look for garbage among it took a third of the start.
gc.set_threshold(300_000, 50, 50)

# Each core has a worker already. Threads of BLAS, and those of PyTorch's operations, wait for each
# other by spinning, which on a busy machine costs several times the CPU of small operations.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

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
    "images": Group(
        commands=(("jpegtran",), ("djpeg",)),
        modules=("simplejpeg", "PIL"),
        how="apt-get install libjpeg-turbo-progs; make setup",
    ),
    "prometheus": Group(
        commands=(("prometheus",), ("promtool",)),
        modules=("promql_parser",),
        how="apt-get install prometheus; make setup",
    ),
    "torch": Group(modules=("torch", "numpy"), how="make setup-all"),
}


FIGURES = Figures()
_SPENT = "cpu"
_BEGAN_S = pytest.StashKey[float]()
_AT_END: dict[str, float] = {}

# What takes minutes in one file, so that no worker is left alone with it at the end
FIRST = ("slurm", "spark", "postgres", "torch", "slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose parts are not there; files that wait for services begin."""
    if lane := config.option.lane:
        # a file that the call names is collected, whatever else leaves it out
        items[:] = [item for item in items if lane_of(item.path) == lane]
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of `tests/lanes.py`."""
    group = parser.getgroup("ettr")
    group.addoption("--lane", choices=LANES, help="collect the files of one lane alone")
    group.addoption("--cpu-seconds", type=Path, help="write CPU seconds by room to this file")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files of the other lane to it."""
    lane = config.option.lane
    if lane is None or collection_path.suffix != ".py":
        return None
    return True if lane_of(collection_path) != lane else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Hold the answers of analyses where tests may share them, fixtures included."""
    hold_findings()
    MEMORY.allow(item)
    item.stash[_BEGAN_S] = cpu_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write what a test took, its fixtures included, into its last report."""
    report = yield
    if call.when == "teardown":
        spent_s = cpu_s() - item.stash.get(_BEGAN_S, cpu_s())
        report.user_properties.append((_SPENT, (group_of(groups_of(item)), spent_s)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what a test took, where the reports of all workers arrive."""
    for name, value in report.user_properties if report.when == "teardown" else ():
        if name == _SPENT:
            FIGURES.add(room_of(report.nodeid.split("::", 1)[0]), *value)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Count what a worker took outside its tests."""
    spent_s, worker_mb = getattr(node, "workeroutput", {}).get(_SPENT, (0.0, 0.0))
    _AT_END["workers_s"] = _AT_END.get("workers_s", 0.0) + spent_s
    FIGURES.largest_mb = max(FIGURES.largest_mb, worker_mb)


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
    _write_figures(session.config)
    if os.environ.get("ETTR_EVERY_GROUP") and absent_groups() and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _write_figures(config: pytest.Config) -> None:
    """Give CPU seconds to the controller, or write them where `--cpu-seconds` says."""
    if hasattr(config, "workeroutput"):
        config.workeroutput[_SPENT] = (cpu_s(), largest_mb())
        return
    if (path := config.option.cpu_seconds) is None:
        return
    in_tests_s = FIGURES.cpu.total()
    spent_s = _AT_END.get("workers_s", cpu_s())
    FIGURES.add(START, "quick", max(0.0, spent_s - in_tests_s), tests=0)
    FIGURES.largest_mb = FIGURES.largest_mb or largest_mb()
    FIGURES.write(path)
