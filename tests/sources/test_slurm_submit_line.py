"""The nodes that a submit command excludes; the forms are those of the manual pages."""

import re

import pytest

from ettr.sources.slurm.job_fields import MAY_EXCLUDE, excluded_nodes


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("sbatch --exclude=node[1-3],node7 train.sh", "node[1-3],node7"),
        ("sbatch --exclude node7 train.sh", "node7"),
        ("sbatch -x node7 train.sh", "node7"),
        ("sbatch -xnode7 train.sh", "node7"),
        ("sbatch -x=node7 train.sh", "node7"),
        ("/usr/bin/sbatch -N2 -x node7 train.sh", "node7"),
        ("srun -x node7 hostname", "node7"),
        ("salloc -p train -x node7", "node7"),
        # flags before it in one word
        ("sbatch -Hx node7 train.sh", "node7"),
        ("sbatch --hold --exclusive --requeue -x node7 train.sh", "node7"),
        # the last one holds
        ("sbatch -x node1 --exclude=node2 train.sh", "node2"),
        # values of options are no script
        ("sbatch --partition train -A team -x node7 train.sh", "node7"),
        ("sbatch --wait -x node7 train.sh", "node7"),
        ("srun --wait 30 -x node7 hostname", "node7"),
        ("sbatch --exclude=node7 --wrap echo hello", "node7"),
        ("sbatch --comment=don't -x node7 train.sh", "node7"),
        ('sbatch --comment={"a":1} -x node7 train.sh', "node7"),
        # none
        ("sbatch train.sh", None),
        ("sbatch train.sh -x node7", None),
        ("sbatch train.sh --exclude=node7", None),
        ("sbatch -p x train.sh -x node7", None),
        ("srun python train.py -x 3", None),
        ("sbatch -- train.sh -x node7", None),
        ("sbatch --wrap tar -x node7", None),
        ("sbatch --exclusive=user train.sh", None),
        ("sbatch -x", None),
        ("python submit.py -x node7", None),
        ("", None),
        # known to be excluded, not known what
        ("sbatch --exclude=./bad-nodes train.sh", None),
        ("sbatch --exclude=$(cat bad) train.sh", None),
        ("srun -x node1 a : -x node2 b", None),
        ("sbatch -x node1 : -N2 -x node2 both.sh", None),
    ],
)
def test_what_a_submit_line_excludes(line: str, nodes: str | None) -> None:
    assert excluded_nodes(line) == nodes


@pytest.mark.parametrize(
    "line", ["sbatch -x n1 a", "sbatch --exclude n1", "sbatch -Hxn1 a", "sbatch --exclud=n1 a"]
)
def test_a_line_that_excludes_is_not_passed_over(line: str) -> None:
    assert re.search(MAY_EXCLUDE, line)
    assert excluded_nodes(line) == "n1"
