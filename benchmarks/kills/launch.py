"""The parent of ranks that are a script of their own: `python -m kills.launch COMMAND`."""

import sys

WORLD = 4


def supervisor(command: list[str]) -> int:
    """Ranks below ettr's supervisor, with one warm spare."""
    from ettr.elastic import SupervisorOptions, supervise

    # A kill every few seconds: the limit against failing without end would end the run.
    options = SupervisorOptions(spares=1, max_failures=10_000)
    return int(not supervise(command, WORLD, options=options, on_event=print).finished)


if __name__ == "__main__":
    sys.exit(supervisor(sys.argv[1:]))
