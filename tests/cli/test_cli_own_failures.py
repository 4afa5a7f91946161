"""`ettr plan STORE` where the store's failures come in bursts, and where they do not."""

from pathlib import Path

import numpy as np
import pytest

from cli.program import ettr
from cli.test_cli_bursts import DAY, DAYS, HEAD, JOBS_A_DAY, START, bursts, day_jobs, sacct

pytestmark = pytest.mark.slow


def store(folder: Path, failed: dict[int, set[int]]) -> Path:
    log = sacct(folder / "sacct.psv", failed)
    done = ettr("ingest", folder / "store", log, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.fixture(scope="module")
def bursty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("bursty"), bursts(0))


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same jobs; each of 100 failures at its own moment of its own day."""
    rng = np.random.default_rng(8)
    which = rng.choice(DAYS * JOBS_A_DAY, 100, replace=False)
    failed = dict(zip(which, rng.random(100), strict=True))
    lines, job = [HEAD], 0
    for day in range(DAYS):
        for _, nodes in day_jobs(day):
            share = failed.get(job)
            job += 1
            run_s = 86_000 if share is None else int(60 + share * 85_000)
            begin = START + day * DAY
            end = begin + np.timedelta64(run_s, "s")
            state = "COMPLETED" if share is None else "NODE_FAIL"
            lines.append(
                f"{job}|c|train|u|{state}|{begin}|{begin}|{end}|{run_s}|4|{nodes}|gres/gpu=32"
            )
    folder = tmp_path_factory.mktemp("even")
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


def test_bursts_are_simulated_and_the_exact_form_says_how_far_it_is_off(bursty: Path) -> None:
    given = ("plan", bursty, "--gpus", "16384", "--write", "30s")
    found = ettr(*given, "--json").json
    simulated = found["simulated"]
    # all failures of a bad day strike at noon: one event for the run, whatever their number
    assert simulated["ettr"] > found["ettr"]["estimate"] + 4 * simulated["ettr_error"]
    assert simulated["exact_ettr"] == pytest.approx(found["ettr"]["estimate"])
    text = " ".join(ettr(*given, "--detail").out.split())
    assert "Failures come in bursts" in text
    assert f"ETTR is {simulated['ettr']:.3f} ±" in text
    assert "too low" in text


@pytest.mark.parametrize("days", [(), ("--days", "30", "--within", "60d")])
def test_the_verdict_on_a_target_is_that_of_the_simulation(
    bursty: Path, days: tuple[str, ...]
) -> None:
    given = ("plan", bursty, "--gpus", "16384", "--write", "30s", *days)
    found = ettr(*given, "--json").json
    exact, simulated = found["ettr"]["estimate"], found["simulated"]["ettr"]
    text = " ".join(
        ettr(*given, "--target", f"{(exact + simulated) / 2:.3f}", "--detail").out.split()
    )
    assert "is reached by the simulated ETTR of" in text
    assert "is missed" not in text
    # what an input has to be is known by the exact form alone, which errs here
    assert "changing one input at a time" not in text
    assert "Sensitivity of ETTR, by the exact form" in text
    assert ("Simulated with the store's own failures: To end within" in text) == bool(days)
    close = " ".join(ettr(*given[:6], "--target", f"{simulated:.6f}").out.split())
    assert "is too near to call by the simulated ETTR" in close


def test_a_time_budget_is_answered_by_the_simulation(bursty: Path) -> None:
    """Failures of one moment cost one restart: fewer nodes do than the exact form asks for."""
    given = ("plan", bursty, "--gpus", "16384", "--write", "30s", "--days", "30", "--within", "33d")
    found = ettr(*given, "--json").json["answers"]["deadline"]
    rate = ettr(*given, "--json").json["rate"]["per_node_day"]["estimate"]
    typed = ("--failures-per-1000-node-days", f"{1000 * rate!r}")
    exact = ettr("plan", *typed, *given[2:], "--gpus-per-node", "8", "--json").json["answers"]
    assert (found["simulated"], exact["deadline"]["simulated"]) == (True, False)
    assert found["smallest"]["n_nodes"] < 0.97 * exact["deadline"]["smallest"]["n_nodes"]
    assert found["smallest"]["chance"] >= 0.9
    assert 0 < found["smallest"]["chance_error"] < 0.05
    assert exact["deadline"]["smallest"]["chance_error"] is None
    text = " ".join(ettr(*given, "--detail").out.split())
    assert "Time budget of 33 d, simulated with the store's own failures" in text
    assert "Intervals are the best by the exact form" in text


def test_a_run_of_finite_length_has_simulated_quantiles(bursty: Path) -> None:
    given = ("plan", bursty, "--gpus", "4096", "--write", "30s", "--days", "30d")
    found = ettr(*given, "--json").json["simulated"]
    times = [at_s for _, at_s in found["quantiles"]]
    assert times == sorted(times)
    assert times[0] > 30 * 86400


def test_a_node_of_another_size_keeps_its_rate_and_the_plan_says_so(even: Path) -> None:
    given = ("plan", even, "--gpus", "1024", "--write", "30s")
    as_seen, smaller = (
        ettr(*given, "--json").json,
        ettr(*given, "--gpus-per-node", "4", "--json").json,
    )
    assert smaller["run"]["n_nodes"] == 2 * as_seen["run"]["n_nodes"]
    assert smaller["rate"] == as_seen["rate"]
    (note,) = (one for one in smaller["assumptions"] if "nodes of 8 GPUs" in one)
    assert "halve it with --failures-per-1000-node-days" in note
    assert not any("nodes of 8 GPUs" in one for one in as_seen["assumptions"])


def test_independent_failures_need_no_simulation(even: Path) -> None:
    found = ettr("plan", even, "--gpus", "16384", "--write", "30s", "--json").json
    assert found["simulated"] is None


def test_typed_rates_have_none() -> None:
    given = ("--gpus", "64", "--failures", "30", "--node-days", "5000")
    assert ettr("plan", *given, "--json").json["simulated"] is None


INFINITEHBD = Path(__file__).parents[3] / "shared/data/traces/infinitehbd/fault_trace.json.zst"


@pytest.mark.skipif(not INFINITEHBD.exists(), reason="InfiniteHBD is not checked out here")
def test_faults_of_nodes_without_jobs_are_replayed_too(tmp_path: Path) -> None:
    """The trace's counts over weeks vary some 15 times as much as independent ones."""
    done = ettr("ingest", tmp_path / "store", INFINITEHBD, "--nodes", "400")
    assert done.code == 0, done.err
    found = ettr("plan", tmp_path / "store", "--gpus", "4096", "--write", "30s", "--json").json
    assert "come in bursts" in found["simulated"]["why"]
    assert "own 584 failures" in found["simulated"]["law"]
