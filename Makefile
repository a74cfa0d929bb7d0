# The menu of development tasks. `make` alone shows it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Four test processes: one of them waits for a real API server most of the time, and others wait for brokers.
JOBS ?= 4
# Long tests start processes of their own.
LONG_JOBS ?= 3
# Some plain tests wait for a deadline. Each process collects all tests first.
PLAIN_JOBS ?= 4
# A test process that dies ends the run: xdist would wait for ever for the tests that it had to reassign.
PYTEST_JOBS = -n $(JOBS) --dist loadgroup --max-worker-restart 0
ARGS ?=
# With it, every process that a test starts would compile all of millpond again, and pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this menu
	@awk 'BEGIN { FS = ":.*## "; printf "\nmillpond: make \033[1mTASK\033[0m\n\n" } \
	  /^[a-z0-9-]+:.*## / { printf "  \033[36m%-17s\033[0m %s\n", $$1, $$2 } \
	  END { printf "\nArguments go through: make test ARGS=\"-k window\"\n\n" }' $(MAKEFILE_LIST)

.PHONY: demo
demo: venv ## Run the flights demo: three workers on a real broker, exactly once, through a kill -9
	@$(BIN)/python examples/flights/demo.py $(ARGS)

.PHONY: demo-snapshot
demo-snapshot: venv spark ## Delete a worker's disk: replay and snapshot side by side, and one table as of three dates
	@$(BIN)/python examples/flights/demo_snapshot.py $(ARGS)

.PHONY: check
check: venv ## Check style, types and layers, and run the plain tests that the change can have broken; all of them with ALL=1
	@$(MAKE) --no-print-directory -j 2 $(if $(ALL),lint,quick-lint) affected

# The plain tests, which need nothing but Python, by the marks of tests/support/needs.py.
PLAIN := not (broker or apiserver or chromium or process or slow or long or spark or s3 or prometheus or helm or java)

# pyright checks the examples and the types of users only: `make lint` and `make check ALL=1` run it.
.PHONY: quick-lint
quick-lint: venv
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@mkdir -p build; $(BIN)/lint-imports --cache-dir build/import-linter > build/layers.txt || { cat build/layers.txt; exit 1; }
	@$(BIN)/mypy

.PHONY: affected
affected: venv
	@$(BIN)/python -m tests.affected $(if $(ALL),--all) --jobs $(PLAIN_JOBS) -- -q $(PYTEST_JOBS) --quick --cases 8 -m "$(PLAIN)"

.PHONY: plain
plain: venv
	@$(BIN)/python -m pytest -q $(PYTEST_JOBS) -n $(PLAIN_JOBS) --quick --cases 8 -m "$(PLAIN)" $(ARGS)

.PHONY: test
test: venv spark ## Run the tests, on a real broker and a real API server; fetches and builds only what the chosen tests need
	@$(BIN)/python -m pytest $(PYTEST_JOBS) -m "not long" $(ARGS)

.PHONY: test-long
test-long: venv spark ## Run the tests that take ten seconds and more each
	@$(BIN)/python -m pytest $(PYTEST_JOBS) -n $(LONG_JOBS) -m long $(ARGS)

.PHONY: test-loaded
RUNS ?= 10
test-loaded: venv ## Run the suite RUNS times beside two busy processes and a busy disk
	@$(BIN)/python -m tests.support.loaded --runs $(RUNS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) $(if $(PAUSE),--longest-pause $(PAUSE)) -- $(ARGS)

.PHONY: ci
ci: ## Run what has to pass before a change is merged, or one PHASE of it: lint, test, long or e2e
	@.ci/run $(if $(PHASE),--only $(PHASE))

.PHONY: nightly
nightly: venv spark ## Run everything that does not decide about a change: make nightly MINUTES=60 SEED=1; in full without MINUTES
	@$(BIN)/python -m tests.nightly $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: differential
N ?= 20000
differential: venv ## Compare with Kafka Streams in N generated topologies: make differential N=20000 SEED=1
	@$(BIN)/python -m tests.differential --cases $(N) --least 200 --processes 2 $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: turns
turns: venv ## Let a Java application and a worker run one application in turns, state and offsets kept: make turns SEED=1
	@$(BIN)/python -m pytest tests/turns $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: mutants
mutants: venv ## Put faults into a copy of the code, one at a time, and show which test catches each: make mutants ARGS="--area commit"
	@$(BIN)/python -m tests.mutants --jobs $(JOBS) $(ARGS)

.PHONY: e2e
e2e: venv ## Run everything on a real cluster: that of KUBECONFIG, or a new one by kind (KIND_NODE_IMAGE)
	@$(BIN)/python -m pytest e2e $(ARGS)

.PHONY: worst-days
worst-days: venv ## Lose nodes, API server, broker, disks and operators under load on a real cluster, one after the other
	@E2E_WORST_DAYS=1 $(BIN)/python -m pytest e2e/worst_days $(ARGS)

.PHONY: e2e-load
e2e-load: venv ## Test the autoscaler and the alerts on a real cluster, with load and with faults
	@E2E_UNDER_LOAD=1 $(BIN)/python -m pytest e2e/under_load $(ARGS)

.PHONY: bench
bench: venv ## Compare with Kafka Streams (Java): one table, and build/bench.json
	@$(BIN)/python -m bench $(ARGS)

.PHONY: bench-assignment
bench-assignment: venv ## Time the assignment of 10,000 tasks on 500 workers
	@$(BIN)/python -m bench.assignment $(ARGS)

.PHONY: bench-broker-start
bench-broker-start: venv ## Time starts of the embedded broker beside two busy processes, with and without the archive of its classes
	@$(BIN)/python -m bench.broker_start $(ARGS)

.PHONY: bench-tracing
bench-tracing: venv ## Measure what tracing costs a record
	@$(BIN)/python -m bench.tracing $(ARGS)

.PHONY: bench-batches
bench-batches: venv ## Measure what steps over batches and async steps bring
	@$(BIN)/python -m bench.batches $(ARGS)

.PHONY: bench-autoscaling
bench-autoscaling: venv ## Replay load traces against autoscalers in simulation: one table, and the pictures of docs/autoscaling
	@$(BIN)/python -m bench.autoscaling --plots docs/autoscaling $(ARGS)

.PHONY: bench-heartbeats
bench-heartbeats: venv ## Measure one coordinator under the heartbeats of 2,000 workers
	@$(BIN)/python -m bench.heartbeats $(ARGS)

.PHONY: bench-hostile
bench-hostile: venv ## Measure the harm of a hostile tenant to the others: late heartbeats, lost leases, memory
	@$(BIN)/python -m tests.cluster.binaries
	@$(BIN)/python -m bench.hostile $(ARGS)

.PHONY: bench-failover
bench-failover: venv ## Compare the pauses of failures and moves with Kafka Streams
	@$(BIN)/python -m bench.failover $(ARGS)

.PHONY: bench-broker-faults
bench-broker-faults: venv ## Stop, kill and freeze brokers of a cluster of three, and measure the pauses beside a plain producer's
	@$(BIN)/python -m bench.broker_faults $(ARGS)

.PHONY: bench-bootstrap
bench-bootstrap: venv spark ## Compare the ways to restore lost state: replay, snapshot, Kafka Streams
	@$(BIN)/python -m bench.bootstrap $(ARGS)

.PHONY: bench-scale-out
bench-scale-out: venv spark ## Add a worker with an empty disk, by replay and by snapshot: make bench-scale-out ARGS="--state-bytes 2G"
	@$(BIN)/python -m bench.scale_out $(ARGS)

.PHONY: bench-scaling
bench-scaling: venv ## Measure the throughput of a second worker
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
lint: venv ## Check style, types, layers, and the workflows of .github
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --cache-dir build/import-linter
	$(BIN)/zizmor --offline --quiet .github

.PHONY: structure
structure: venv ## Show the size and shape of the code: sizes and import cycles of packages, large folders, long modules
	@$(BIN)/python -m tests.packaging.structure

.PHONY: texts
texts: venv ## Show 60 messages, log lines and docstrings to read without the code beside them: make texts SEED=7
	@$(BIN)/python -m tests.packaging.texts $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: coverage
coverage: venv ## Measure the branch coverage of the plain tests, and print it per package; HTML is in build/coverage
	@rm -rf build/coverage; failed=0; \
	$(BIN)/python -m coverage run -m pytest -q $(PYTEST_JOBS) --quick -m "$(PLAIN)" $(ARGS) || failed=$$?; \
	$(BIN)/python -m coverage combine --quiet; \
	$(BIN)/python -m coverage html --quiet; \
	$(BIN)/python -m tests.packaging.coverage_table; \
	exit $$failed

.PHONY: format
format: venv ## Format the code and apply ruff's fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: docs
docs: venv ## Build the documentation into build/docs
	@$(BIN)/sphinx-build -q -W --keep-going -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

.PHONY: screenshots
screenshots: venv ## Take the pictures of the console for the documentation; needs Chromium
	@$(BIN)/python -m docs.screenshots

.PHONY: docs-pictures
docs-pictures: docs ## Look at every page of the documentation at four looks, and name faults; needs Chromium
	@$(BIN)/python -m docs.pictures $(ARGS)

.PHONY: reference
reference: venv ## Write docs/reference from the CRDs
	@$(BIN)/python -m docs.crds

.PHONY: venv
venv: $(VENV)/ready ## Make the virtual environment (all other tasks do this first)

$(VENV)/ready: requirements.lock pyproject.toml setup.py
	@command -v $(PYTHON) >/dev/null || { echo "millpond needs Python 3.11 or newer; name it with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "millpond needs Python 3.11 or newer, and $(PYTHON) is older; name another one with make PYTHON=..." >&2; exit 1; }
	@echo "Installing the pinned dependencies into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Separate, since pyspark is larger than everything else together.
.PHONY: spark
spark: venv $(VENV)/spark ## Install Spark and the libraries for snapshots and tables

$(VENV)/spark: requirements-spark.lock $(VENV)/ready
	@echo "Installing Spark into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	@touch $@

# The operator runs no topologies: its image has no packages of the data plane. It draws them, by grandalf.
COMPILE = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --custom-compile-command "make lock"
DATA_PLANE := confluent-kafka mmh3 rocksdict rich markdown-it-py mdurl pygments

.PHONY: prometheus
prometheus: venv ## Get Prometheus and promtool for tests, once; tests get them by themselves if there is apt
	@$(BIN)/python -m tests.support.programs.prometheus

.PHONY: dashboards
dashboards: venv ## Write the dashboards and rules of the chart from monitoring/
	@$(BIN)/python -m monitoring

.PHONY: dashboard-pictures
dashboard-pictures: venv ## Draw the dashboards of docs/monitoring.md from a run of some minutes; needs Chromium
	@$(BIN)/python -m tests.monitoring.pictures

.PHONY: versitygw
versitygw: venv ## Get the S3 server for tests, once; tests get it by themselves
	@$(BIN)/python -m tests.support.programs.versitygw

.PHONY: helm
helm: venv ## Get Helm 3 and Helm 4 for tests, once; tests get them by themselves
	@$(BIN)/python -m tests.support.programs.helm

.PHONY: manifests
manifests: helm ## Write what follows from helm/millpond and crds/: deploy/, the chart's schema, definitions and README
	@$(BIN)/python -m helm.generate

.PHONY: dist
dist: venv ## Build the wheel and the sdist of this checkout into dist/
	@$(BIN)/python -m release.dist $(ARGS)

.PHONY: release
release: venv ## Build wheel, chart and images into dist/, build them again and compare, and try them (BUILD_OPTIONS: for docker build)
	@$(BIN)/python -m release $(ARGS)

.PHONY: lock
lock: ## Pin the newest versions of the dependencies in pyproject.toml (for maintainers)
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --upgrade --extra dev $(ARGS) pyproject.toml --output-file requirements.lock
	$(COMPILE) -c requirements.lock --extra s3 $(ARGS) pyproject.toml --output-file requirements-worker.lock
	$(COMPILE) -c requirements.lock --extra operator $(addprefix --no-emit-package ,$(DATA_PLANE)) $(ARGS) \
	  pyproject.toml --output-file requirements-operator.lock
	$(COMPILE) -c requirements.lock --extra spark --extra catalog $(ARGS) pyproject.toml --output-file requirements-spark.lock
	echo 'setuptools>=77' | $(COMPILE) -c requirements.lock $(ARGS) - --output-file requirements-build.lock

.PHONY: clean
clean: ## Remove everything that the other tasks made, also the virtual environment
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache worker/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
