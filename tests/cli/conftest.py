from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr, write_logs


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_logs(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="session")
def site(logs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds the small site's logs; tests only read it."""
    place = tmp_path_factory.mktemp("site") / "store"
    done = ettr("ingest", place, *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    return place


@pytest.fixture(scope="session")
def document(site: Path) -> dict[str, Any]:
    """The JSON report of the small site; tests only read it."""
    done = ettr("report", site, "--json")
    assert done.code == 0, done.err
    made: dict[str, Any] = done.json
    return made
