"""Capture the bundled example: the logs that a real Slurm left after the scenario of the tests.

Needs root and Debian's Slurm packages; two minutes. `make example` calls it.
"""

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN = Path(tempfile.gettempdir()) / "site"


def main() -> None:
    """Run the scenario and write its logs to examples/slurm."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from slurm.cluster import slurm_cluster
    from slurm.scenario import capture, play

    shutil.rmtree(RUN, ignore_errors=True)
    with slurm_cluster(RUN) as cluster:
        capture(cluster, play(cluster), HERE / "slurm")
    shutil.rmtree(RUN, ignore_errors=True)


if __name__ == "__main__":
    main()
