from pathlib import Path

import pytest

from cli.program import ettr, write_logs


@pytest.fixture(scope="session")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the small site, as a file."""
    folder = tmp_path_factory.mktemp("report")
    page = folder / "report.html"
    done = ettr("report", *write_logs(folder), "--timezone", "UTC", "-o", page)
    assert done.code == 0, done.err
    return page
