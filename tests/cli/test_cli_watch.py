"""`ettr watch`: one look from the command line, and what its table may hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.program import KERNEL, SACCT, ettr


def site(folder: Path, table: str) -> Path:
    (folder / "logs").mkdir()
    (folder / "logs" / "sacct.psv").write_text(SACCT)
    (folder / "logs" / "kernel.log").write_text(KERNEL)
    (folder / "site.toml").write_text(f'timezone = "UTC"\n[watch]\n{table}\n')
    return folder


def test_one_look_prints_the_metrics_of_the_files_that_the_table_names(tmp_path: Path) -> None:
    folder = site(tmp_path, 'files = ["logs/*"]\ncluster = "c"')
    done = ettr("watch", "site", "--config", "site.toml", "--once", folder=folder)
    assert done.code == 0, done.err
    # 24 hours of 16 GPUs, and 25 of 8
    assert 'ettr_gpu_hours_total{bucket="ran"} 584.0\n' in done.out
    assert done.out.endswith("# EOF\n")
    failures = ettr("failures", "site", "--json", folder=folder).json["all_jobs"]["failures"]
    assert failures == done.out.count("ettr_failures{") == 1


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('file = ["logs/*"]', "[watch] has no 'file'; known: files"),
        ('files = "logs/*"', "[watch] files is 'logs/*'; give a list of texts"),
        ("every = '5s'", "[watch] follows nothing; give files, journal or collect-every"),
        ('files = ["logs/*"]\nhost = "0.0.0.0"', "other machines reach it; give token-file"),
    ],
)
def test_a_wrong_table_is_refused_by_name(tmp_path: Path, table: str, says: str) -> None:
    done = ettr("watch", "site", "--config", "site.toml", folder=site(tmp_path, table))
    assert done.code == 2
    assert says in done.err
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("store", ["s3://bucket/site", "site.duckdb", "postgresql://db/site"])
def test_a_store_that_is_no_folder_is_refused(tmp_path: Path, store: str) -> None:
    folder = site(tmp_path, 'files = ["logs/*"]')
    done = ettr("watch", store, "--config", "site.toml", folder=folder)
    assert done.code == 2
    assert f"{store}: a store in a bucket or a database cannot be watched" in done.err
    assert sorted(path.name for path in folder.iterdir()) == ["logs", "site.toml"]


def test_dashboards_are_written(tmp_path: Path) -> None:
    done = ettr("watch", "site", "--dashboards", "grafana", folder=tmp_path)
    assert done.code == 0, done.err
    made = sorted(path.name for path in (tmp_path / "grafana").iterdir())
    names = ("fleet", "large-runs", "manager", "node", "partition")
    assert made == [*(f"{name}.json" for name in names), "rules.yml"]
    assert json.loads((tmp_path / "grafana" / "fleet.json").read_text())["panels"]
