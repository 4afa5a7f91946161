"""The examples at the foot of each command's help; tests run every one of them.

`site` is a store made by `ettr ingest`; the logs are those of examples/slurm.
"""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "report": (
        "ettr report sacct.psv kernel.log --timezone Europe/Zurich",
        "ettr report site --output march.html",
    ),
    "ingest": ("ettr ingest site sacct.psv kernel.log --timezone Europe/Zurich",),
    "explain": ("ettr explain site 2 --window 1200,300",),
    "timeline": (
        "ettr timeline site",
        "ettr timeline site --min-gpus 64 --since 2026-03-01 --output march.html",
    ),
    "collect": ("ettr collect logs --since 2026-03-01", "ettr collect logs --store site"),
    "export": (
        "ettr export site --to site-tables.duckdb",
        "ettr export site --table failures --to failures.csv",
    ),
    "sql": (
        "ettr sql site 'SELECT symptom, count(*) AS n FROM failures GROUP BY symptom'",
        "ettr sql site --show all_failures",
    ),
    "sources": ("ettr sources",),
    "catalog": ("ettr catalog 79", "ettr catalog --conflicts"),
    "status": ("ettr status site",),
    "sizes": ("ettr sizes site",),
    "failures": (
        "ettr failures site --list --since 2026-03-01",
        "ettr failures site --above-gpus 256 --confidence 0.95",
    ),
    "causes": ("ettr causes site", "ettr causes site --believe aws"),
    "user-failures": ("ettr user-failures site --since 2026-03-01",),
    "mttf": ("ettr mttf site --json",),
    "runs": ("ettr runs site", "ettr runs site --interval 30min"),
    "goodput": ("ettr goodput site",),
    "nodes": ("ettr nodes site",),
    "node": ("ettr node site", "ettr node site gpu11"),
    "lemons": (
        "ettr lemons site --back-test",
        "ettr lemons site gpu11 --output gpu11.html",
    ),
    "slow": ("ettr slow site",),
    "quality": ("ettr quality site",),
    "forecast": ("ettr forecast site", "ettr forecast site --ahead 1d,7d --nodes 64"),
    "plan": (
        "ettr plan --gpus 16384 --failures 419 --node-days 110592 --write 30s --target 0.9",
        "ettr plan site --gpus 4096 --html planner.html",
    ),
    "project": (
        "ettr project site --gpus 4096,16384 --spares 16 --repair 2d",
        "ettr project --failures 419 --node-days 110592 --seen-gpus 16384 --gpus 32768",
    ),
    "compare": (
        "ettr compare old=30/5000 new=12/6000",
        "ettr compare site --published",
    ),
    "simulate": (
        "ettr simulate run small --store simulated",
        "ettr simulate whatif small --set lemons.share=0 --runs 3",
    ),
    "verify": ("ettr verify checkpoints --step 12000",),
    "elastic": ("ettr elastic --ranks 4 -- python train.py",),
    "measure-recovery": ("ettr measure-recovery model.py:build experiment --steps 400",),
    "chaos": (
        "ettr chaos --launcher --fault kill --every 20 -- ettr elastic -n 4 -- python train.py",
    ),
}
