"""A rank of the benchmark: `python -m kills.rank CONFIG.json`, under whatever launcher.

It says which slot it has before it imports torch: from then on it can be killed.
"""

import contextlib
import json
import os
import sys
import warnings
from pathlib import Path

from kills.notes import Notes


def own_session() -> None:
    """A session of its own, of the driver's weight, as each of torchrun's ranks has it anyway.

    Linux shares the cores among sessions first (autogroups): ranks that share one would get less of
    a busy machine than ranks that do not.
    """
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError, KeyError):
        Path("/proc/self/autogroup").write_text(os.environ["KILLS_AUTOGROUP"])


def main() -> None:
    """Choose the loop by the configuration."""
    own_session()
    path = Path(sys.argv[1])
    config, notes = json.loads(path.read_text()), Notes(path.parent)
    slot = os.environ.get("KILLS_SLOT") or os.environ.get("RANK")
    if slot is not None:  # else ettr's supervisor gives it one later
        notes.holds(int(slot))
    warnings.simplefilter("ignore")
    import torch

    from kills import loops

    torch.set_num_threads(1)
    {"elastic": loops.elastic, "plain": loops.plain}[config["loop"]](config, notes)


if __name__ == "__main__":
    main()
