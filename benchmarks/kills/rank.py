"""A rank of the benchmark: `python -m kills.rank CONFIG.json`, under whatever launcher.

It says which slot it has before it imports torch: from then on it can be killed.
"""

import json
import os
import sys
import warnings
from pathlib import Path

from kills.notes import Notes


def main() -> None:
    """Choose the loop by the configuration."""
    path = Path(sys.argv[1])
    config, notes = json.loads(path.read_text()), Notes(path.parent)
    slot = os.environ.get("KILLS_SLOT") or os.environ.get("RANK")
    if slot is not None:  # else ettr's supervisor gives it one later
        notes.holds(int(slot))
    warnings.simplefilter("ignore")
    import torch

    from kills import loops

    torch.set_num_threads(1)
    {"elastic": loops.elastic, "plain": loops.plain, "torchft": loops.replica}[config["loop"]](
        config, notes
    )


if __name__ == "__main__":
    main()
