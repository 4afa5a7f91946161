"""Node lists that are cut or odd, and accelerators that Slurm does not call gpu."""

from pathlib import Path

import pytest

from ettr.sources.base import ReadOptions
from ettr.sources.node_lists import expand_nodes, listed_nodes
from ettr.sources.registry import named
from ettr.taxonomy import load_taxonomy
from source_samples import read_all, rows_of

HEADER = "JobID|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
TIMES = "2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T01:00:00|3600"


def _sacct(tmp_path: Path, rows: list[str], **given: object) -> list[object]:
    path = tmp_path / "sacct.psv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return read_all(named("slurm-sacct"), path, ReadOptions(timezone="UTC", cluster="c", **given))


@pytest.mark.parametrize(
    "cut", ["node[001-008,010,012-0...", "g[001-008,010,012+", "a1,a2,a3...", "g[001-008,010"]
)
def test_an_attempt_with_a_cut_node_list_keeps_its_counts(tmp_path: Path, cut: str) -> None:
    batches = _sacct(tmp_path, [f"8|COMPLETED|{TIMES}|12|{cut}|gres/gpu=96"])
    (attempt,) = rows_of(batches, "attempts")
    assert (attempt["n_nodes"], attempt["n_gpus"], attempt["node_list"]) == (12, 96, None)
    assert not rows_of(batches, "allocations")
    assert any("1 node list is cut off" in note for batch in batches for note in batch.notes)


def test_a_plus_in_the_name_of_a_node(tmp_path: Path) -> None:
    batches = _sacct(tmp_path, [f"10|COMPLETED|{TIMES}|2|compute+b24_[1-2]|gres/gpu=16"])
    nodes = [row["node"] for row in rows_of(batches, "allocations")]
    assert nodes == ["compute+b24_1", "compute+b24_2"]
    assert expand_nodes("a+b,c+[1,3]") == ("a+b", "c+1", "c+3")


def test_brackets_that_nothing_opens_are_counted_in_no_time() -> None:
    assert listed_nodes("dev[2-3" + "]" * 100_000) == 2


@pytest.mark.parametrize("end", ["0", "1970-01-01T00:00:00", "1969-12-31T16:00:00"])
def test_the_beginning_of_unix_time_is_no_end(tmp_path: Path, end: str) -> None:
    times = "2026-03-01T00:00:00|2026-03-01T00:00:00"
    (row,) = rows_of(_sacct(tmp_path, [f"15|RUNNING|{times}|{end}|3600|1|g1|cpu=1"]), "attempts")
    assert (row["end"], row["elapsed_s"]) == (None, 3600)


OTHERS = [
    f"110|COMPLETED|{TIMES}|1|g1|cpu=8,gres/dcu=4,mem=10G,node=1",
    f"111|COMPLETED|{TIMES}|1|g1|cpu=8,gres/npu:910b=8,mem=10G,node=1",
    f"112|COMPLETED|{TIMES}|1|g1|cpu=8,gres/npu=8,gres/npu:910b=8,node=1",
    f"113|COMPLETED|{TIMES}|1|g1|cpu=8,gres/gpu=2,gres/nvme=1,node=1",
]


def test_unknown_generic_resources_are_counted_in_a_note(tmp_path: Path) -> None:
    batches = _sacct(tmp_path, OTHERS)
    assert [row["n_gpus"] for row in rows_of(batches, "attempts")] == [0, 0, 0, 2]
    notes = " ".join(note for batch in batches for note in batch.notes)
    assert "gres/npu (2 attempts), gres/dcu (1 attempt)" in notes
    assert "--accelerators dcu,npu" in notes


def test_accelerators_of_other_names_count_as_gpus(tmp_path: Path) -> None:
    batches = _sacct(tmp_path, OTHERS, accelerators=("npu", "dcu"))
    assert [row["n_gpus"] for row in rows_of(batches, "attempts")] == [4, 8, 8, 2]
    assert not any("generic" in note for batch in batches for note in batch.notes)


NODES = """\
NodeName=n1 CPUTot=128 Gres=npu:910b:8 RealMemory=515000 State=IDLE

NodeName=d1 CPUTot=128 Gres=dcu:4(S:0-1) RealMemory=515000 State=IDLE
"""


def test_an_inventory_counts_them_too(tmp_path: Path) -> None:
    path = tmp_path / "nodes.txt"
    path.write_text(NODES)
    source = named("slurm-inventory")
    plain = read_all(source, path, ReadOptions(timezone="UTC", cluster="c"))
    assert [(row["node"], row["n_gpus"]) for row in rows_of(plain, "nodes")] == [
        ("n1", 0),
        ("d1", 0),
    ]
    notes = " ".join(note for batch in plain for note in batch.notes)
    assert "gres/npu (1 node), gres/dcu (1 node)" in notes
    counted = read_all(source, path, ReadOptions(timezone="UTC", accelerators=("npu", "dcu")))
    rows = [(row["node"], row["n_gpus"], row["gpu_type"]) for row in rows_of(counted, "nodes")]
    assert rows == [("n1", 8, "910b"), ("d1", 4, None)]


CONTROLLER = """\
[2026-03-01T10:00:11.000] error: validate_node_specs: Prolog or job env setup failure on node g07, \
draining the node
[2026-03-01T10:00:14.500] error: Setting node g11 state to INVAL with reason:gres/gpu count \
reported lower than configured (7 < 8)
[2026-03-01T10:00:14.501] drain_nodes: node g11 state set to DRAIN
[2026-03-01T10:00:15.000] node g12 not resumed by ResumeTimeout(1200), setting DOWN and POWERED_DOWN
[2026-03-01T10:00:15.500] node g13 not resumed by ResumeTimeout(600) - marking down and power_save
"""


def test_forms_of_the_controller_about_nodes_that_do_not_start(tmp_path: Path) -> None:
    path = tmp_path / "slurmctld.log"
    path.write_text(CONTROLLER)
    events = rows_of(read_all(named("slurmctld-log"), path, ReadOptions(timezone="UTC")), "events")
    assert [(row["node"], row["code"], row["severity"]) for row in events] == [
        ("g07", "PROLOG_ERROR", "critical"),
        ("g11", "CONFIG_MISMATCH", "critical"),
        ("g11", "DRAIN", "warning"),
        ("g12", "NODE_DOWN", "critical"),
        ("g13", "NODE_DOWN", "critical"),
    ]
    assert "lower than configured" in str(events[2]["message"])
    assert str(events[3]["message"]).endswith("with reason: ResumeTimeout reached")
    assert load_taxonomy().classify_reason("ResumeTimeout reached").symptom == "boot"


SECRETS = (
    (
        "sbatch --export=WANDB_API_KEY=T4,HF_TOKEN=T5 x.sh",
        "--export=WANDB_API_KEY=***,HF_TOKEN=***",
    ),
    (
        "sbatch --export ALL,KEY=T4,T5 x.sh --password T6",
        "--export ALL,KEY=***,*** x.sh --password ***",
    ),
    ('sbatch --export="A=T4 T5,PATH" x.sh', '--export="A=***,***" x.sh'),
    (
        "srun --hf-token=T4 --tokenizer=gpt2 --max-tokens 9",
        "--hf-token=*** --tokenizer=gpt2 --max-tokens 9",
    ),
    ('sbatch --wrap="export HF_TOKEN=T4; python a.py"', 'HF_TOKEN=***; python a.py"'),
    ("srun git clone https://me:T4@example.org/a.git", "https://***@example.org/a.git"),
    ("srun a.sh hf_T4aaaaaaaaaaaaaaaa", "srun a.sh ***"),
    ("sbatch --exclude=n3 -J a=b x.sh", "sbatch --exclude=n3 -J a=b x.sh"),
)


@pytest.mark.parametrize(("line", "kept"), SECRETS)
def test_secrets_of_a_submit_line_are_never_stored(tmp_path: Path, line: str, kept: str) -> None:
    path = tmp_path / "sacct.psv"
    path.write_text(f"{HEADER}|SubmitLine\n7|COMPLETED|{TIMES}|1|g1|cpu=1|{line}\n")
    (row,) = rows_of(read_all(named("slurm-sacct"), path, ReadOptions(timezone="UTC")), "attempts")
    assert kept in str(row["submit_line"])
    assert not any(secret in str(row) for secret in ("T4", "T5", "T6"))


def test_a_reject_tells_no_secret_either(tmp_path: Path) -> None:
    path = tmp_path / "sacct.psv"
    path.write_text(f"{HEADER}|SubmitLine\n7|NONSENSE|{TIMES}|1|g1|cpu=1|sbatch --token T4\n")
    batches = read_all(named("slurm-sacct"), path, ReadOptions(timezone="UTC"))
    (reject,) = rows_of(batches, "rejects")
    assert "--token ***" in str(reject["raw"])


NHC = """\
20260301 11:55:02 /usr/sbin/nhc -c /etc/nhc/nhc.conf
Node Health Check starting.
ERROR:  nhc:  Health check failed:  check_nvsmi_healthmon:  nvidia-smi: problem with GPU 3
20260301 11:59:45 [slurm] /usr/libexec/nhc/node-mark-offline gpu-1.example.org check_nvsmi: bad
/usr/libexec/nhc/node-mark-offline:  Marking gpu-1 offline:  NHC: check_nvsmi: bad
/usr/libexec/nhc/node-mark-online:  Not sure how to handle node state "" on gpu-1.example.org
"""


def test_a_log_of_nhc_is_of_the_node_that_it_marks(tmp_path: Path) -> None:
    path = tmp_path / "nhc.log"
    path.write_text(NHC)
    (event,) = rows_of(read_all(named("nhc"), path, ReadOptions(timezone="UTC")), "events")
    assert (event["node"], event["check"]) == ("gpu-1", "check_nvsmi_healthmon")
