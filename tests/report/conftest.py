from pathlib import Path

import pytest

from cli.program import ettr, write_logs

EXAMPLE = Path(__file__).parents[2] / "examples" / "slurm"


@pytest.fixture(scope="session")
def example_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the bundled example, which no test changes."""
    store = tmp_path_factory.mktemp("example") / "site"
    done = ettr("ingest", store, *sorted(EXAMPLE.iterdir()), "--timezone", "UTC")
    assert done.code == 0, done.err
    return store


@pytest.fixture(scope="session")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the small site, as a file."""
    folder = tmp_path_factory.mktemp("report")
    page = folder / "report.html"
    done = ettr("report", *write_logs(folder), "--timezone", "UTC", "-o", page)
    assert done.code == 0, done.err
    return page
