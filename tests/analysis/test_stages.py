"""Every stage of an analysis names a question that is there when it is asked first of all."""

from __future__ import annotations

import subprocess
import sys

ASK = """
from functools import cached_property
from importlib import import_module
from ettr.analysis import Analysis
stages = [
    one for kind in Analysis.__mro__ for one in vars(kind).values() if type(one) is cached_property
]
places = [one.func.__closure__[0].cell_contents for one in stages if one.func.__closure__]
named = [one for one in places if isinstance(one, str)]
for place in named:
    module, _, name = place.rpartition(".")
    assert callable(getattr(import_module(f"ettr.{module}"), name))
print(len(named))
"""


def test_every_stage_names_a_question() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 35
