"""The taxonomy stands on the standard library alone."""

import subprocess
import sys


def test_taxonomy_imports_nothing_beyond_the_standard_library() -> None:
    code = (
        "import sys, ettr.taxonomy as t; t.load_taxonomy();"
        "heavy = ('numpy', 'pyarrow', 'duckdb', 'pandas', 'torch');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
