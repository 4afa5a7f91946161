"""On which days a node's log was arriving: lines that report nothing count as well."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ettr.sources.base import ReadOptions
from ettr.sources.registry import named
from source_samples import read_all, rows_of

Days = dict[tuple[str, str], int]


def _days(
    tmp_path: Path, lines: list[str], *, name: str = "messages", source: str = "kernel-xid", **given
) -> Days:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    batches = read_all(named(source), path, ReadOptions(**given))
    for batch in batches:
        assert batch.rows_read == batch.rows_kept + batch.rows_rejected + batch.rows_skipped
    return {
        (row["node"], f"{row['day']:%Y-%m-%d}"): row["n_lines"]
        for row in rows_of(batches, "log_days")
    }


@pytest.mark.parametrize(
    "lines",
    [
        [
            "Nov 20 23:59:59 n1 kernel: usb 1-1: new device",
            "Nov 21 00:00:01 n1 kernel: usb 1-1: gone",
            "Nov 21 09:00:01 a-node-with-a-long-name-0001 kernel: usb 1-1: gone",
            "Nov 21 10:00:01 n1 kernel: usb 1-1: gone",
        ],
        [
            "2024-11-20T23:59:59.123456+00:00 n1 kernel: usb 1-1: new device",
            "2024-11-21T00:00:01.000000+00:00 n1 kernel: usb 1-1: gone",
            "2024-11-21T09:00:01.000000+00:00 a-node-with-a-long-name-0001 kernel: usb: gone",
            "2024-11-21T10:00:01.000000+00:00 n1 kernel: usb 1-1: gone",
        ],
        [
            '{"__REALTIME_TIMESTAMP":"1732147199000000","_HOSTNAME":"n1","MESSAGE":"usb"}',
            '{"_HOSTNAME":"n1","MESSAGE":"usb","__REALTIME_TIMESTAMP":"1732147201000000"}',
            '{"__REALTIME_TIMESTAMP":"1732179601000000",'
            '"_HOSTNAME":"a-node-with-a-long-name-0001","MESSAGE":"usb"}',
            '{"__REALTIME_TIMESTAMP":"1732183201000000","_HOSTNAME":"n1","MESSAGE":"usb"}',
        ],
    ],
    ids=["syslog", "iso", "journal"],
)
def test_harmless_lines_show_that_a_kernel_log_was_arriving(
    tmp_path: Path, lines: list[str]
) -> None:
    found = _days(tmp_path, lines, timezone="UTC", start=datetime(2024, 11, 20, tzinfo=UTC))
    assert found == {
        ("n1", "2024-11-20"): 1,
        ("n1", "2024-11-21"): 2,
        ("a-node-with-a-long-name-0001", "2024-11-21"): 1,
    }


def test_dmesg_names_no_node_and_is_that_of_its_file(tmp_path: Path) -> None:
    lines = ["[Wed Nov 20 10:00:00 2024] usb 1-1: new", "[Thu Nov 21 10:00:00 2024] usb: gone"]
    found = _days(tmp_path, lines, name="n7.dmesg", timezone="UTC")
    assert found == {("n7", "2024-11-20"): 1, ("n7", "2024-11-21"): 1}


def test_days_are_those_of_utc(tmp_path: Path) -> None:
    lines = [
        "2024-07-02 01:30:00 n1 kernel: usb 1-1: new device",
        "2024-07-02 02:30:00 n1 kernel: usb 1-1: new device",
    ]
    assert _days(tmp_path, lines, timezone="Europe/Zurich") == {
        ("n1", "2024-07-01"): 1,
        ("n1", "2024-07-02"): 1,
    }
    assert _days(tmp_path, lines, timezone="America/New_York") == {("n1", "2024-07-02"): 2}


def test_other_programs_prove_nothing_of_a_kernel_that_was_never_heard(tmp_path: Path) -> None:
    lines = [
        "2024-11-20T10:00:00+00:00 n1 kernel: usb 1-1: new device",
        "2024-11-21T10:00:00+00:00 n1 sshd[17]: session opened",
        "2024-11-21T10:00:00+00:00 n2 sshd[17]: session opened",
    ]
    assert _days(tmp_path, lines) == {("n1", "2024-11-20"): 1, ("n1", "2024-11-21"): 1}


def test_the_order_of_the_lines_dates_a_log_of_more_than_a_year(tmp_path: Path) -> None:
    days = ["Dec 20", "Jan  5", "Jun 10", "Dec 30", "Jan  7"]
    lines = [f"{day} 10:00:00 n1 kernel: usb 1-1: new device" for day in days]
    found = _days(tmp_path, lines, timezone="UTC", start=datetime(2021, 12, 1, tzinfo=UTC))
    assert [day for _, day in found] == [
        "2021-12-20",
        "2022-01-05",
        "2022-06-10",
        "2022-12-30",
        "2023-01-07",
    ]


def test_stamps_of_which_nobody_knows_the_moment_have_no_day(tmp_path: Path) -> None:
    lines = ["[   12.345678] usb 1-1: new device", "[   13.000000] usb 1-1: gone"]
    assert _days(tmp_path, lines, name="n7.dmesg") == {}
    start = datetime(2024, 11, 20, 23, 59, 47, 500_000, tzinfo=UTC)
    assert _days(tmp_path, lines, name="n7.dmesg", start=start) == {
        ("n7", "2024-11-20"): 1,
        ("n7", "2024-11-21"): 1,
    }


def test_lines_of_many_nodes_in_turn_are_all_counted(tmp_path: Path) -> None:
    nodes = [f"n{place}" for place in range(300)]
    lines = [
        f"2024-11-{day:02d}T{hour:02d}:{place // 5:02d}:00+00:00 {node} kernel: [{place}.000001] x"
        for day in range(1, 5)
        for hour in range(24)
        for place, node in enumerate(nodes)
    ]
    found = _days(tmp_path, lines)
    assert found == {(node, f"2024-11-{day:02d}"): 24 for node in nodes for day in range(1, 5)}


def test_a_check_that_ran_shows_that_checks_were_arriving(tmp_path: Path) -> None:
    lines = [
        "Nov 20 10:00:00 n1 nhc[17]: Node Health Check starting.",
        "Nov 20 10:00:01 n1 sshd[17]: session opened",
        "Nov 20 10:00:02 n2 sshd[17]: session opened",
        "Nov 21 10:00:01 n1 nhc[18]: ERROR: nhc: Health check failed: check_hw_gm: gone",
    ]
    found = _days(
        tmp_path, lines, source="nhc", timezone="UTC", start=datetime(2024, 11, 1, tzinfo=UTC)
    )
    assert found == {("n1", "2024-11-20"): 1, ("n1", "2024-11-21"): 1}
