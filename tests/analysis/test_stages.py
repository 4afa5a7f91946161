"""Every stage of an analysis names a question that is there when it is asked first of all."""

from __future__ import annotations

import subprocess
import sys

ASK = """
from functools import cached_property
from ettr.analysis import Analysis
stages = [one for one in vars(Analysis).values() if isinstance(one, cached_property)]
places = [one.func.__closure__[0].cell_contents for one in stages if one.func.__closure__]
# modules of `ettr.analysis` are loaded when they are named, and load others
for place in sorted(places, key=lambda one: "rooms" in one.__code__.co_names):
    assert callable(place())
print(len(places))
"""


def test_every_stage_names_a_question() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 35
