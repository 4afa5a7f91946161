"""The backends on which attribution must give the same results."""

import ibis
import pytest


@pytest.fixture(scope="session")
def duckdb_connection() -> ibis.BaseBackend:
    return ibis.duckdb.connect()


@pytest.fixture(params=["duckdb"])
def connection(request: pytest.FixtureRequest) -> ibis.BaseBackend:
    return request.getfixturevalue(f"{request.param}_connection")
