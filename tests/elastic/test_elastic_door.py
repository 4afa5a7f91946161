"""The public names of `ettr.elastic`: all there, and none costs an import before it is used."""

import subprocess
import sys

import pytest

import ettr.elastic

BEFORE_FIRST_USE = """
import sys
import ettr.elastic
from ettr.elastic import Protection, SupervisorOptions, supervise
Protection(buddy=True)
print("torch" in sys.modules, "numpy" in sys.modules)
"""


def test_what_needs_no_torch_is_imported_without_it():
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_FIRST_USE], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.torch
def test_every_public_name_is_there():
    pytest.importorskip("torch")
    for name in ettr.elastic.__all__:
        assert getattr(ettr.elastic, name).__module__.startswith("ettr.elastic."), name


def test_public_names_are_listed_and_another_is_refused():
    assert set(ettr.elastic.__all__) <= set(dir(ettr.elastic))
    with pytest.raises(AttributeError, match="no attribute 'Protektion'"):
        ettr.elastic.Protektion  # noqa: B018
