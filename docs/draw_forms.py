"""Draw the exact form and the paper's against simulated runs: explanation/figures/ettr-forms.svg.

The simulation is that of the tests, which shares no code with the forms.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "plan"))
from test_plan_renewal import simulated_wallclocks_s  # noqa: E402

from ettr.plan.intervals import second_form_ettr  # noqa: E402
from ettr.plan.renewal import exact_ettr  # noqa: E402
from ettr.plan.run import PlannedRun, nodes_of  # noqa: E402

GPUS = [8, 128, 1_024, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072]
INTERVAL_S, WRITE_S, RESTART_S = 3600.0, 60.0, 300.0


def main() -> None:
    """Simulate, draw, and print what was drawn."""
    mpl.rcParams["svg.hashsalt"] = "ettr"  # the same file from the same numbers
    rng = np.random.default_rng(2025)
    fine = np.geomspace(GPUS[0], GPUS[-1], 200)
    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    axes.plot(fine, [exact_ettr(planned(n)) for n in fine], label="exact form")
    held = [n for n in fine if planned(n).lost_share < 1]
    axes.plot(
        held, [second_form_ettr(planned(n)) for n in held], "--", label="the paper's form (v2)"
    )
    print(f"{'GPUs':>8} {'paper':>7} {'exact':>7} {'simulated':>10}  (two standard errors)")
    for n_gpus in GPUS:
        run = replace(planned(n_gpus), productive_s=24 * INTERVAL_S)
        clocks_s = simulated_wallclocks_s(run, 400 if n_gpus > 60_000 else 4_000, rng)
        error_s = 2 * clocks_s.std() / math.sqrt(clocks_s.size)
        mean_s = clocks_s.mean()
        # a run of finite length also starts once: take that start out, as in the long run
        seen = run.productive_s / (mean_s - RESTART_S)
        axes.errorbar(
            n_gpus,
            seen,
            seen * error_s / mean_s,
            fmt="ko",
            ms=4,
            capsize=3,
            label="simulated runs" if n_gpus == GPUS[0] else None,
        )
        lost = planned(n_gpus).lost_share
        paper = f"{second_form_ettr(planned(n_gpus)):7.3f}" if lost < 1 else "   none"
        print(
            f"{n_gpus:8,} {paper} {exact_ettr(planned(n_gpus)):7.3f} {seen:10.3f}  "
            f"± {seen * error_s / mean_s:.3f}"
        )
    axes.set(xscale="log", xlabel="GPUs", ylabel="ETTR", ylim=(0, 1))
    axes.set_xticks(GPUS, [f"{n:,}" for n in GPUS], rotation=30)
    axes.minorticks_off()
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(HERE / "explanation" / "figures" / "ettr-forms.svg", metadata={"Date": None})


def planned(n_gpus: float) -> PlannedRun:
    """The run that is drawn: checkpoints every hour at the rate of RSC-1."""
    nodes = max(1, nodes_of(round(n_gpus)))
    return PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=nodes,
        interval_s=INTERVAL_S,
        write_s=WRITE_S,
        restart_s=RESTART_S,
    )


if __name__ == "__main__":
    main()
