# The menu of development tasks. `make` alone shows it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Three test processes: one of them waits for a real API server most of the time. More processes are slower on small machines.
JOBS ?= 3
# A test process that dies ends the run, and is told: xdist would wait for ever for tests that it had to give to others.
PYTEST_JOBS = -n $(JOBS) --dist loadgroup --max-worker-restart 0
ARGS ?=
# Where it is set, every process that a test starts would compile all of millpond anew, and pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this menu
	@awk 'BEGIN { FS = ":.*## "; printf "\nmillpond: make \033[1mTASK\033[0m\n\n" } \
	  /^[a-z0-9-]+:.*## / { printf "  \033[36m%-16s\033[0m %s\n", $$1, $$2 } \
	  END { printf "\nArguments go through: make test ARGS=\"-k window\"\n\n" }' $(MAKEFILE_LIST)

.PHONY: demo
demo: venv ## Run the flights demo: three workers on a real broker, exactly once, through a kill -9
	@$(BIN)/python examples/flights/demo.py $(ARGS)

.PHONY: demo-snapshot
demo-snapshot: venv spark ## Delete a worker's disk: replay and snapshot side by side, and one table as of three dates
	@$(BIN)/python examples/flights/demo_snapshot.py $(ARGS)

.PHONY: check
check: venv ## Check what needs nothing but Python, soon: style, types, layers, and every plain test
	@$(MAKE) --no-print-directory -j 2 lint plain

# What needs nothing but Python, by the marks that tests/support/needs.py derives.
PLAIN := not (broker or apiserver or process or slow or spark or s3)

.PHONY: plain
plain: venv
	@$(BIN)/python -m pytest -q $(PYTEST_JOBS) --quick -m "$(PLAIN)" $(ARGS)

.PHONY: test
test: venv spark ## Run all tests, on a real broker and a real API server; only what the chosen ones need is fetched and built
	@$(BIN)/python -m pytest $(PYTEST_JOBS) $(ARGS)

.PHONY: test-loaded
RUNS ?= 10
test-loaded: venv ## Run the suite RUNS times beside two busy processes and a busy disk
	@$(BIN)/python -m tests.support.loaded --runs $(RUNS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) -- $(ARGS)

.PHONY: soak
soak: venv ## Run the long tests in full, or MINUTES of them: make soak MINUTES=10 SEED=1
	@$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: mutants
mutants: venv ## Put faults into a copy of the tree one at a time, and show which test catches each: make mutants ARGS="--area commit"
	@$(BIN)/python -m tests.mutants --jobs $(JOBS) $(ARGS)

.PHONY: e2e
e2e: venv ## Run everything on a real cluster: the one of KUBECONFIG, or one that kind makes (KIND_NODE_IMAGE)
	@$(BIN)/python -m pytest e2e $(ARGS)

.PHONY: bench
bench: venv ## Compare with Kafka Streams (Java): one table, and build/bench.json
	@$(BIN)/python -m bench $(ARGS)

.PHONY: bench-assignment
bench-assignment: venv ## Time the assignment of 10,000 tasks on 500 workers
	@$(BIN)/python -m bench.assignment $(ARGS)

.PHONY: bench-heartbeats
bench-heartbeats: venv ## Measure one coordinator under the heartbeats of 2,000 workers
	@$(BIN)/python -m bench.heartbeats $(ARGS)

.PHONY: bench-hostile
bench-hostile: venv ## Measure what a hostile tenant costs the others: late heartbeats, lost leases, memory
	@$(BIN)/python -m tests.cluster.binaries
	@$(BIN)/python -m bench.hostile $(ARGS)

.PHONY: bench-failover
bench-failover: venv ## Compare the pauses of failures and moves with Kafka Streams
	@$(BIN)/python -m bench.failover $(ARGS)

.PHONY: bench-bootstrap
bench-bootstrap: venv spark ## Compare the ways back to lost state: replay, snapshot, Kafka Streams
	@$(BIN)/python -m bench.bootstrap $(ARGS)

.PHONY: bench-scale-out
bench-scale-out: venv spark ## Add a worker with an empty disk, by replay and by snapshot: make bench-scale-out ARGS="--state-bytes 2G"
	@$(BIN)/python -m bench.scale_out $(ARGS)

.PHONY: bench-scaling
bench-scaling: venv ## Measure what a second worker brings
	@$(BIN)/python -m bench.scaling $(ARGS)

.PHONY: bench-streamapps
bench-streamapps: venv ## Measure one operator with a thousand StreamApps on a real API server
	@$(BIN)/python -m tests.cluster.binaries
	@$(BIN)/python -m bench.streamapps $(ARGS)

.PHONY: chaos
FAULTS ?= 200
chaos: venv ## Run random faults against three workers and check every record: make chaos FAULTS=200 SEED=1
	@$(BIN)/python -m tests.chaos --faults $(FAULTS) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: lint
lint: venv ## Check style, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --cache-dir build/import-linter

.PHONY: format
format: venv ## Format the code and mend what ruff can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: docs
docs: venv ## Build the documentation into build/docs
	@$(BIN)/sphinx-build -q -W --keep-going -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

.PHONY: reference
reference: venv ## Write docs/reference anew from the CRDs
	@$(BIN)/python -m docs.crds

.PHONY: venv
venv: $(VENV)/ready ## Make the virtual environment (every other task does so by itself)

$(VENV)/ready: requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "millpond needs Python 3.11 or newer; name it with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "millpond needs Python 3.11 or newer, and $(PYTHON) is older; name another one with make PYTHON=..." >&2; exit 1; }
	@echo "Installing the pinned dependencies into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Apart from the rest, since pyspark is larger than everything else together.
.PHONY: spark
spark: venv $(VENV)/spark ## Install what snapshots and their tables need: Spark, and libraries for it

$(VENV)/spark: requirements-spark.lock $(VENV)/ready
	@echo "Installing Spark into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	@touch $@

# The operator runs no topologies: what only that needs is not in its image.
COMPILE = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --custom-compile-command "make lock"
DATA_PLANE := confluent-kafka rocksdict rich markdown-it-py mdurl pygments

.PHONY: versitygw
versitygw: venv ## Build the S3 server that tests use, once; tests build it by themselves where there is Go
	@$(BIN)/python -m tests.support.versitygw

.PHONY: lock
lock: ## Pin the dependencies of pyproject.toml anew (for maintainers)
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --upgrade --extra dev $(ARGS) pyproject.toml --output-file requirements.lock
	$(COMPILE) -c requirements.lock --extra s3 $(ARGS) pyproject.toml --output-file requirements-worker.lock
	$(COMPILE) -c requirements.lock --extra operator $(addprefix --no-emit-package ,$(DATA_PLANE)) $(ARGS) \
	  pyproject.toml --output-file requirements-operator.lock
	$(COMPILE) -c requirements.lock --extra spark --extra catalog $(ARGS) pyproject.toml --output-file requirements-spark.lock
	echo 'setuptools>=77' | $(COMPILE) -c requirements.lock $(ARGS) - --output-file requirements-build.lock

.PHONY: clean
clean: ## Remove what the other tasks made, the virtual environment too
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache worker/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
