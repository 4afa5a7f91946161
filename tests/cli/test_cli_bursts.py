"""Bursts through the command line: no command may take 100 failures of 16 events for 100 events."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

HEAD = "JobID|Cluster|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
DAYS, JOBS_A_DAY, NODES = 120, 64, 256
DAY = np.timedelta64(86_400, "s")
START = np.datetime64("2026-01-01T00:00:00")


def day_jobs(day: int) -> list[tuple[int, str]]:
    """64 jobs of four nodes on each day; each runs from midnight on its own nodes."""
    return [(slot, f"n[{4 * slot + 1}-{4 * slot + 4}]") for slot in range(JOBS_A_DAY)]


def sacct(path: Path, failed: dict[int, set[int]]) -> Path:
    """A dump in which the jobs of `failed[day]` end at noon in NODE_FAIL, the others complete."""
    lines, job = [HEAD], 0
    for day in range(DAYS):
        for slot, nodes in day_jobs(day):
            job += 1
            fails = slot in failed.get(day, ())
            run_s = 43_200 if fails else 86_000
            begin = START + day * DAY
            end = begin + np.timedelta64(run_s, "s")
            state = "NODE_FAIL" if fails else "COMPLETED"
            lines.append(
                f"{job}|c|train|u|{state}|{begin}|{begin}|{end}|{run_s}|4|{nodes}|gres/gpu=32"
            )
    path.write_text("\n".join(lines) + "\n")
    return path


def bursts(seed: int) -> dict[int, set[int]]:
    """16 bad days at a constant rate, some six jobs each, on slots drawn for each of them."""
    rng = np.random.default_rng(seed)
    days = np.sort(rng.choice(DAYS, 16, replace=False))
    sizes = 1 + rng.poisson(5.25, 16)
    return {
        int(day): {int(slot) for slot in rng.choice(JOBS_A_DAY, size, replace=False)}
        for day, size in zip(days, sizes, strict=True)
    }


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    made = []
    for seed in range(3):
        folder = tmp_path_factory.mktemp(f"bursts{seed}")
        log = sacct(folder / "sacct.psv", bursts(seed))
        done = ettr("ingest", folder / "store", log, "--timezone", "UTC")
        assert done.code == 0, done.err
        made.append(folder / "store")
    return made


def shown(*words: Any) -> dict[str, Any]:
    done = ettr(*words, "--json")
    assert done.code == 0, done.err
    document: dict[str, Any] = done.json
    return document


def width(interval: dict[str, float]) -> float:
    return interval["high"] - interval["low"]


def test_the_headline_admits_that_failures_come_together(stores: list[Path]):
    for store in stores:
        rate = shown("failures", store)["all_jobs"]
        assert width(rate["per_1000_node_days"]) > 1.8 * width(rate["exact_per_1000_node_days"])
        assert "vary" in ettr("failures", store, "--detail").out


def test_mttf_plan_and_project_agree_with_the_headline(stores: list[Path]):
    rate = shown("failures", stores[0])["all_jobs"]["per_1000_node_days"]
    by_size = shown("mttf", stores[0])["scheduler_mttf_h"]
    assert by_size["high"] / by_size["low"] == pytest.approx(rate["high"] / rate["low"], rel=0.02)
    planned = shown("plan", stores[0], "--gpus", 1024)["mttf_h"]
    assert planned["high"] / planned["low"] == pytest.approx(rate["high"] / rate["low"], rel=0.02)
    projected = shown("project", stores[0], "--gpus", 1024)["points"][0]["projection"]["mttf_h"]
    assert projected["high"] / projected["low"] >= 0.98 * rate["high"] / rate["low"]


def test_the_middle_of_a_constant_rate_is_no_upgrade(stores: list[Path]):
    """With 16 bursts the exact test calls a third to a half of such halves different."""
    believed = []
    for store in stores:
        pair = shown("compare", store, "--all-jobs", "--before", "2026-03-02T00:00:00Z")["pairs"][0]
        assert pair["believe"] == "paired"
        believed.append(pair[pair["believe"]]["p_value"])
        # all failures are of one symptom: it may not claim what the whole denies
        believed += [ratio["p_value"] for ratio in pair["by_symptom"].values()]
    assert min(believed) > 0.02


def test_three_fleets_claim_no_more_than_their_corrected_test():
    document = shown("compare", "a=30/5000", "b=12/6000", "c=20/3000")
    for pair in document["pairs"]:
        ratio = pair[pair["believe"]]
        if ratio["p_value"] > 0.1:
            assert "fails more often" not in ratio["meaning"]
            assert "No difference" in ratio["meaning"]
    assert any(pair["independent"]["p_value"] > 0.1 for pair in document["pairs"])


def test_a_constant_rate_in_bursts_is_not_getting_better_or_worse(stores: list[Path]):
    for store in stores:
        direction = shown("failures", store)["direction"]
        assert direction["verdict"] == "undecided"
        assert direction["ratio"]["low"] < 1.0 < direction["ratio"]["high"]
        assert direction["spread"]["index"] > 2.0
        assert "Whether it is getting better is undecided: " in " ".join(
            ettr("failures", store, "--detail").out.split()
        )


def test_a_rate_that_fell_is_getting_better(tmp_path: Path):
    """Three lone failures a day for two months, then one every second day."""
    rng = np.random.default_rng(5)
    failed = {
        day: set(rng.choice(JOBS_A_DAY, 3 if day < 60 else day % 2, replace=False).tolist())
        for day in range(DAYS)
    }
    log = sacct(tmp_path / "sacct.psv", failed)
    assert ettr("ingest", tmp_path / "store", log, "--timezone", "UTC").code == 0
    direction = shown("failures", tmp_path / "store")["direction"]
    assert direction["verdict"] == "better"
    assert direction["ratio"]["ratio"] == pytest.approx(30 / 180, rel=0.1)
