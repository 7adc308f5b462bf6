# `make` lists the targets. Every target sets up what it needs in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SPARK_READY := $(VENV)/.spark-ready
SOURCES := src tests bench demo chaos fuzz dashboard/tool.py dashboard/api_types.py
WORKERS ?= 2
DASHBOARD := src/drmq/gateway/static/index.html
DASHBOARD_SOURCES := $(shell find dashboard -name node_modules -prune -o -type f -print)
FLAKY := build/flaky.txt
RERUN := tests/support/rerun.py --flaky $(FLAKY)

# `make other-pythons` runs OTHER_TESTS on each of these that can be run, in a virtual environment of its own.
OTHER_PYTHONS ?= python3.12 python3.13
OTHER_TESTS := $(addprefix tests/unit/,records wire raft catalog groups columnar transport) \
  $(addprefix tests/unit/storage/,test_segment_log.py test_log_contract.py test_ledger.py test_snapshots.py) \
  tests/scripts tests/e2e/test_embedded.py $(addprefix tests/e2e/test_up_down.py::,test_up_serves_and_down_stops \
  test_up_after_a_crash_goes_on_with_the_same_data_and_port) \
  --ignore tests/unit/raft/test_planted_bugs.py --ignore tests/unit/raft/test_random_cluster.py

.DEFAULT_GOAL := help
.PHONY: help demo run test test-steps flaky check unit conformance e2e spark-test other-pythons soak chaos simulate \
  bench spark-bench fuzz lint types format docs lock clean tools package dashboard dashboard-test

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 22

$(READY): requirements/dev.txt pyproject.toml hatch_build.py src/drmq/columnar/_decoder.c $(wildcard proto/drmq/v1/*.proto)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "DRMQ needs Python 3.11 or later; $(PYTHON) is older. Try: make PYTHON=python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Spark is large, so it is set up only by the targets that run it.
$(SPARK_READY): $(READY) requirements/spark.txt
	@echo "Setting up Spark in $(VENV) (once; about a minute, 600 MB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/spark.txt
	@touch $@

demo: $(SPARK_READY) $(DASHBOARD) ## a killed leader, work queues with a poison message, a Spark query, the dashboard
	@$(BIN)/python -m demo
	@$(BIN)/python -m demo.queues
	@$(BIN)/python -m demo.spark
	@$(BIN)/python -m demo.dashboard

# Without Node the file is not made, and the gateway serves its API only.
$(DASHBOARD): $(DASHBOARD_SOURCES) | $(READY)
	@$(BIN)/python dashboard/tool.py build

dashboard: $(DASHBOARD) ## build the pages that the gateway serves, with Node of the system or from PyPI

dashboard-test: | $(READY) ## types and unit tests of the dashboard
	@$(BIN)/python dashboard/tool.py test

run: $(READY) $(DASHBOARD) ## three nodes with live traffic behind the dashboard and the fault lab, until Ctrl-C
	@$(BIN)/python -m demo.run

# A test with real processes that fails is run once more, alone. If it passes then, the last lines name it as flaky.
test: $(SPARK_READY) $(DASHBOARD) tools ## all tests (about half an hour)
	@rm -f $(FLAKY)
	@status=0; $(MAKE) --no-print-directory test-steps || status=$$?; \
	  $(BIN)/python tests/support/rerun.py --flaky $(FLAKY) --report $$status

test-steps:
	@$(MAKE) --no-print-directory lint types dashboard-test
	@$(BIN)/python $(RERUN) -q -n $(WORKERS) --dist worksteal --durations 15 tests --ignore tests/spark
	@$(BIN)/python $(RERUN) -q --durations 5 tests/spark
	@$(MAKE) --no-print-directory other-pythons

# The machine has no time to spare meanwhile. What fails is listed, with how often. TESTS="tests/e2e -k up" selects some.
flaky: $(SPARK_READY) $(DASHBOARD) tools ## tests with processes beside processes that burn CPU, many times (ROUNDS=20 BURNERS=8)
	@$(BIN)/python tests/support/flaky.py --rounds $(or $(ROUNDS),20) --burners $(or $(BURNERS),8) \
	  --workers $(WORKERS) $(TESTS)

spark-test: $(SPARK_READY) ## the Spark data source, in one shared local session (about five minutes)
	@$(BIN)/python -m pytest -q tests/spark

# A name on the PATH may be a shim that does not run, so each interpreter is tried.
other-pythons: ## a short set of tests on Python 3.12 and 3.13, where they can be run (OTHER_PYTHONS="python3.14")
	@for python in $(OTHER_PYTHONS); do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) \
	    || { echo "$$python cannot be run: the tests on it are skipped"; continue; }; \
	  $(MAKE) --no-print-directory PYTHON=$$python VENV=.venv-$$version .venv-$$version/.ready || exit 1; \
	  echo "Python $$version:"; \
	  .venv-$$version/bin/python $(RERUN) -q -n $(WORKERS) --dist worksteal $(OTHER_TESTS) || exit 1; \
	done

check: $(READY) ## fast: lint, types, layers, unit tests and scenario scripts
	@$(MAKE) --no-print-directory lint types
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/unit tests/scripts tests/test_tidy.py tests/test_docs.py

lint: $(READY)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "run: make format"; exit 1; }
	@$(BIN)/lint-imports --no-cache | tail -n 3

types: $(READY)
	@$(BIN)/mypy

format: $(READY) ## format the code with ruff
	@$(BIN)/ruff check --fix --quiet $(SOURCES) || true
	@$(BIN)/ruff format $(SOURCES)

unit: $(READY) ## unit tests and scenario scripts only
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/unit tests/scripts

conformance: $(READY) tools ## unmodified Kafka clients against a real broker, or with NODES=3 a cluster
	@DRMQ_TEST_NODES=$(NODES) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/conformance

e2e: $(READY) tools ## real processes: kill -9, full disk, limits, command line
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/e2e

soak: $(READY) ## run the crash tests for longer (MINUTES=10)
	@DRMQ_SOAK_MINUTES=$(or $(MINUTES),10) $(BIN)/python -m pytest -q -s tests/e2e/test_crash.py --timeout 0

chaos: $(READY) tools ## a cluster under failures: every scenario, then random combinations (MINUTES=10 SEED=1 NODES=5)
	@$(BIN)/python -m chaos --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0) --nodes $(or $(NODES),3)

simulate: $(READY) ## simulated clusters with injected faults (SEEDS=1000 FROM=0 NODES=3 SIM_MINUTES=2)
	@$(BIN)/drmq simulate --seed $(or $(FROM),0) --seeds $(or $(SEEDS),1000) --nodes $(or $(NODES),3) \
	  --minutes $(or $(SIM_MINUTES),2) --workers $(WORKERS)

fuzz: $(READY) ## feed random bytes to every parser and to the port (COUNT=200000)
	@for target in fuzz/fuzz_*.py; do echo "== $$target"; $(BIN)/python $$target --count $(or $(COUNT),200000) || exit 1; done

bench: $(READY) ## speed and memory compared with a baseline, Redis, NATS and, if available, Kafka
	@$(BIN)/python -m bench $(BENCH)

spark-bench: $(SPARK_READY) ## Spark over topics compared with prepared batches and a plain consumer
	@$(BIN)/python -m bench.spark $(BENCH)

docs: $(READY) ## regenerate the generated parts of docs/reference
	@$(BIN)/python -m drmq.server.docs

# The wheel is built from the source distribution, so the clone stays as it is. hatch_build.py chooses its tag.
package: $(READY) $(DASHBOARD) ## the source distribution and a manylinux wheel in dist
	@DRMQ_COLUMNAR=compiled $(BIN)/python -m build --no-isolation

lock: $(READY) ## pin the dependencies in requirements again
	@$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header --no-emit-options \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --extra dev --extra bench \
	  -o requirements/dev.txt pyproject.toml
	@$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header --no-emit-options \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --extra spark -c requirements/dev.txt \
	  -o requirements/spark.txt pyproject.toml

# Three test tools do not come from PyPI: kcat, a Kafka client, strace, which makes system calls fail, and a browser.
# As root on Debian they are installed. Elsewhere their tests are skipped, and the reason names the package.
tools:
	@for tool in kcat strace chromium; do \
	  command -v $$tool >/dev/null 2>&1 \
	    || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
	         && { apt-get update -qq && apt-get install -y -qq --no-install-recommends $$tool; } >/dev/null 2>&1; } \
	    || echo "$$tool is not installed (Debian package $$tool): its tests will be skipped"; \
	done

clean: ## remove virtual environments and everything generated
	@rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/drmq/columnar/*.so \
	  src/drmq/gateway/static src/drmq/v1/*_pb2* dashboard/node_modules tests/grpc_node/node_modules
