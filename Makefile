# What you can do here, each from a fresh clone with nothing but Python 3.11+ and make. `make help` lists it.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The newest Python that works, not just the newest name: a version manager may put names on the path that lead nowhere.
FIND_PYTHON := for name in $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3 python); do \
	"$$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1 \
	&& { echo "$$name"; exit; }; done

# Tests start hundreds of processes, and each would compile all that it imports: 0.2 s of CPU for a server.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test chaos compat smoke differential fuzz check docs format bench lock sbom clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## the whole story on real processes: a table, routes, a kill in between, counts in = counts out
	@$(BIN)/python -m demo

test: $(READY) ## run the test suite, five tests at a time, but for the longest, which `make smoke` plays; SLOW=1 adds 500 kill cycles, ARGS='-k name' picks a few tests
	@$(BIN)/pytest -n 5 $(ARGS)
	@$(if $(SLOW),$(BIN)/pytest tests/chaos --kill-cycles 500)
	@$(if $(SLOW),$(BIN)/pytest tests/integration/capture/test_model.py --capture-faults 50)

chaos: $(READY) ## real servers under faults, judged by a checker; ARGS='--profile long' for 20 minutes, '--seed 7' to repeat
	@$(BIN)/python -m chaos $(ARGS)

compat: $(READY) ## try every Kafka client at full volume, and the tools around Kafka; writes docs/reference/kafka-clients.md
	@$(BIN)/python -m tests.compat.prepare
	@$(BIN)/pytest tests/compat --everything $(ARGS)

smoke: $(READY) ## the longest tests, and the short form of what needs more than PyPI: clients of Java, Go and Node, kcat, Kafka's tools, logins of all of them, shadows, Spark's Kafka connector, the real-time mode, a Spark cluster
	@$(BIN)/pytest -n 5 --long $(ARGS)
	@$(BIN)/python -m tests.compat.prepare
	@$(BIN)/pytest tests/compat/test_clients.py --others \
		-k '(java or franz-go or kafkajs or kcat or spark) and (keyed or zstd or idempotent or consume or two-members or topics or transaction)' $(ARGS)
	@$(BIN)/pytest tests/compat/tools --others $(ARGS)
	@$(BIN)/pytest tests/compat/security --others -k 'java or franz-go or kafkajs or kcat or commands' $(ARGS)
	@$(BIN)/pytest tests/compat/shadow --others -k 'everything or aborted or killed_at_any_time or acknowledged or rolled_back or user_with_a_password' $(ARGS)
	@$(BIN)/pytest tests/compat/test_realtime.py tests/compat/test_cluster.py --others $(ARGS)

differential: $(READY) ## ask PostgreSQL and Tailrace the same SQL and list what differs; ARGS='--subject json' picks a subject
	@$(BIN)/python -m tests.differential.report $(ARGS)

fuzz: $(READY) ## look for input that does harm, for five minutes; ARGS='--seconds 3600 --seed 7' for other runs
	@$(BIN)/python -m tests.fuzz $(ARGS)

check: $(READY) ## lint, formatting, types, import contracts, generated code, documentation
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.generate_sync --check
	@$(MAKE) --no-print-directory docs

docs: $(READY) ## build the site of the documentation into build/site, and check every link in it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

format: $(READY) ## let ruff format and sort
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY) ## measure beside plain writes, Apache Kafka, Debezium, NATS and PostgreSQL; writes docs/benchmarks.md and build/benchmarks.html. ARGS=--help says more
	@$(BIN)/python -m bench.run $(ARGS)

lock: $(READY) ## renew uv.lock and requirements.lock from pyproject.toml
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv lock --quiet $(ARGS)
	@$(BIN)/uv export --quiet --locked --no-emit-project --no-header --format requirements-txt --output-file requirements.lock

sbom: $(READY) ## write the software bill of materials (CycloneDX) from uv.lock to build/sbom.cdx.json
	@$(BIN)/python -m tools.sbom build/sbom.cdx.json

clean: ## remove the environment and all caches
	@rm -rf $(VENV) tests/compat/java/target tests/compat/spark/target tests/compat/go/target tests/compat/node/node_modules tests/compat/tools/target tests/compat/tools/*/target .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml requirements.lock
	@python=$$($(FIND_PYTHON)); test -n "$$python" || { \
		echo "Tailrace needs Python 3.11 to 3.14 with venv; none is on the path. Set one: make PYTHON=/path/to/python" >&2; exit 1; }; \
	test -x $(BIN)/pip || { echo "Setting up $(VENV) with $$($$python --version), once; this takes about a minute."; \
		"$$python" -m venv --clear $(VENV); }
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
