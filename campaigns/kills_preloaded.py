"""Everything that an ingestion loads, for the process from which the killed ones are forked."""

import duckdb
import pyarrow.dataset
import pyarrow.parquet
import pydantic
import typer._adapters

import campaigns.kills
import ettr.cli.ingest
import ettr.cli.main
import ettr.sources.ingest
import ettr.store.backend
import ettr.store.folder
from ettr.sources.registry import all_sources

LOADED = (duckdb, pyarrow, pydantic, typer, campaigns.kills, ettr, all_sources())
