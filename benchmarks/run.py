"""Run the benchmarks of one side and print their tables, each beside the anchor that it names."""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# what belongs to which side: every other script in this folder is a benchmark of the analysis
TRAINING = "training_"
NOT_BENCHMARKS = {
    "run.py",
    "gpu_check.py",
    "drawing.py",
    "published_clusters.py",
    "simulated_figures.py",
}


def scripts(side: str) -> list[Path]:
    """The benchmark scripts of a side, in the order of their names."""
    found = [path for path in sorted(HERE.glob("*.py")) if path.name not in NOT_BENCHMARKS]
    return [path for path in found if path.name.startswith(TRAINING) == (side == "training")]


def main() -> int:
    """Run each script in a process of its own; the status of the worst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=("analysis", "training"))
    parser.add_argument("--only", help="part of a script's name")
    given = parser.parse_args()
    worst = 0
    for path in scripts(given.side):
        if given.only and given.only not in path.stem:
            continue
        print(f"\n== {path.stem.replace('_', ' ')} ==", flush=True)
        worst = max(worst, subprocess.run([sys.executable, path], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
