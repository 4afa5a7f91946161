"""A site's own table of attempts, taken in as a store."""

from __future__ import annotations

from pathlib import Path

from cli.program import ettr

HEAD = "cluster,job_id,state,submit,start,end,elapsed_s,n_nodes,n_gpus,node_list\n"


def site_of_attempts(folder: Path, *rows: str) -> Path:
    """The store of a table with such rows below `HEAD`, each with its line end."""
    (folder / "jobs.csv").write_text(HEAD + "".join(rows))
    options = ("--source", "table", "--table", "attempts")
    done = ettr("ingest", folder / "site", folder / "jobs.csv", *options)
    assert done.code == 0, done.err
    return folder / "site"
