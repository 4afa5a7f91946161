# One command each; `make` lists them. Everything runs in an environment of its own, .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install $(INSTALL_OPTIONS) --constraint constraints.txt
OUT ?= out
# of the tests that compute; services, real kills and Slurm's clock are mostly waited for beside them
WORKERS ?= $(shell nproc)
WAITING_WORKERS ?= $(shell expr $(WORKERS) + 1)
TRAINING_TESTS := adapters chaos checkpoint elastic recovery
# the code in Markdown is formatted too
PYTHON_IN := src tests benchmarks campaigns reproduction docs examples README.md

# without bytecode every command that a test starts compiles each module again
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# what torchtitan's trainer imports: without trackers, and with a later `datasets` than it asks for
TORCHTITAN := torchtitan absl-py datasets dill docstring_parser einops grpcio multiprocess shtab spmd_types \
	tensorboard tensorboard-data-server torch_checkpointing typeguard tyro werkzeug

.PHONY: help setup setup-all report test test-analysis test-training test-fast lint format bench bench-training gpu-check campaign \
	reproduce-scar docs example example-simulated clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

setup: $(VENV)/.ready ## the environment: ettr and what its tests need

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[dev]'
	@touch $@

# torch first and by its exact version, so that no other requirement chooses another. Which build it
# is, with CUDA or without, is what pip's index has: nothing here needs CUDA
setup-all: setup ## the environment with the extras: torch, trainers, Spark, PostgreSQL
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable '.[dev,dev-torch,torch,adapters,spark,postgres,sim]'
	$(INSTALL) --no-deps $(TORCHTITAN)

report: setup ## a report of the bundled example, in out/report.html
	$(BIN)/ettr report examples/slurm/* --timezone UTC --output $(OUT)/report.html

test: setup ## every test for which this machine has the parts; says what it left out
	$(BIN)/python tests/lanes.py --computing $(WORKERS) --waiting $(WAITING_WORKERS)

# the contracts of pyproject.toml prove that neither tower imports the other
test-analysis: setup ## the tests of the analysis, the planner and the simulator alone
	$(BIN)/python tests/lanes.py --computing $(WORKERS) --waiting $(WAITING_WORKERS) \
		$(TRAINING_TESTS:%=--ignore=tests/%)

test-training: setup ## the tests of checkpoints, recovery, adapters and chaos alone
	$(BIN)/python tests/lanes.py --computing $(WORKERS) --waiting $(WAITING_WORKERS) \
		$(TRAINING_TESTS:%=tests/%)

# nothing waits here, and each process collects all tests first
test-fast: setup ## under two minutes: no torch, no service, nothing slow
	$(BIN)/python -m pytest --numprocesses $$(nproc) --dist loadfile --no-loadscope-reorder \
		-m 'not (slow or torch or slurm or spark or postgres or browser)'

lint: setup ## formatting, lint, types and layers
	$(BIN)/ruff format --check $(PYTHON_IN)
	$(BIN)/ruff check $(PYTHON_IN)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## format the code
	$(BIN)/ruff format $(PYTHON_IN)
	$(BIN)/ruff check --fix $(PYTHON_IN)

bench: setup ## the benchmarks of the analysis, each a table beside what it names
	$(BIN)/python benchmarks/run.py analysis

bench-training: setup-all ## the benchmarks of the training side
	$(BIN)/python benchmarks/run.py training

gpu-check: setup-all ## what only a GPU shows, in eight minutes at most; says so where there is none
	$(BIN)/python benchmarks/gpu_check.py

campaign: setup ## a long measurement: make campaign NAME; its table goes to docs/results/campaigns
	$(BIN)/python -m campaigns $(CAMPAIGN)

ifeq (campaign,$(firstword $(MAKECMDGOALS)))
CAMPAIGN := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
$(eval $(CAMPAIGN):;@:)
endif

reproduce-scar: setup-all ## SCAR's experiments; resumable; needs the training sets (DATA=...)
	OMP_NUM_THREADS=1 $(BIN)/python -m reproduction.scar --data $(or $(DATA),../shared/data/training) --out $(OUT)/scar

docs: setup ## the parts that are made from the code, and the site in out/site; needs no network
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --site-dir $(abspath $(OUT))/site

example: setup ## capture the bundled example anew from a real Slurm (root; Debian's slurm-wlm)
	$(BIN)/python examples/capture.py

example-simulated: setup ## a simulated month of an RSC-2-like cluster, and its report, in out/
	rm -rf $(OUT)/simulated $(OUT)/simulated-truth
	$(BIN)/ettr simulate run rsc-2-like --store $(OUT)/simulated --seed 1
	$(BIN)/ettr report $(OUT)/simulated --output $(OUT)/simulated.html

clean: ## remove what the commands above made
	rm -rf $(VENV) $(OUT)
