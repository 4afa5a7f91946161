"""Run a campaign whole and keep its table: `python -m campaigns NAME`, or `make campaign NAME`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from campaigns import NAMES

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "campaigns"


def main(words: list[str]) -> int:
    """Run the campaign of that name, and the one that goes with it; exit 2 where there is none."""
    if len(words) != 1 or words[0] not in NAMES:
        print(f"give one campaign: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"campaigns.{words[0].replace('-', '_')}")
    table = module.run(module.SIZE)
    page = "\n\n".join(
        [
            f"# {module.TITLE}",
            (module.__doc__ or "").strip(),
            f"Asked: {table.asked}",
            table.markdown(),
            f"{module.SIZE} draws a row; seeds: {table.seeds}. `make campaign {words[0]}` makes "
            "this page.",
            *([table.verdict] if table.verdict else []),
        ]
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{words[0]}.md").write_text(page + "\n", encoding="utf-8")
    print(page)
    then = getattr(module, "THEN", None)
    return main([then]) if then else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
