# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp

# Tests on real data read RULER_DATA and are skipped, with a reason, where it is absent.
ifneq ($(wildcard ../shared/data),)
export RULER_DATA ?= $(abspath ../shared/data)
endif

.PHONY: setup demo test test-here test-cluster coverage check format docs notebooks bench slow mutants fuzz reliability dist try-dist lock clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: setup
	$(BIN)/ruler demo --out ruler-demo

# The cluster's tests wait more than they compute, so they run beside the others. Each worker begins with one half of the
# tests, in order: what the tests of a file share is then made once. Commands that tests start share compiled modules.
# No test reads logs, and catching those of a hundred loggers takes as long as the shortest tests.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -p no:logging
DEFAULT = -n 2 --dist worksteal -m 'not slow and not gpu and not cluster'

test: setup
	@$(MAKE) --no-print-directory --jobs 2 --keep-going test-here test-cluster

test-here:
	$(PYTEST) $(DEFAULT)

test-cluster:
	$(PYTEST) -m 'cluster and not slow' tests/cluster

# Lines and branches that no test of the default suite runs; fails under 92%.
coverage: setup
	$(PYTEST) $(DEFAULT) --cov

slow: setup
	$(BIN)/python -m pytest -q -m slow
	HYPOTHESIS_PROFILE=explore $(PYTEST) $(DEFAULT) tests/laws tests/embeddings

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site in build/site; a warning, such as a link that leads nowhere, is an error. `make test` builds it too.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Run the notebooks of the docs and write their outputs into them.
notebooks: setup
	OMP_NUM_THREADS=1 $(BIN)/python tools/notebooks.py $(ARGS)

# `make bench ARGS="--quick"`, or another benchmark: `make bench ARGS="precision --json FILE"`.
bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

# Feed changed files to every reader for half an hour; other budgets: `make fuzz ARGS="--seconds 60 --jobs 4"`. Counts of
# several runs add up in the file that `--keep` names.
fuzz: setup
	OMP_NUM_THREADS=1 nice $(BIN)/python -m tests.fuzz --seconds 1800 --jobs 2 --write docs/reliability.md $(ARGS)

# Bundles with traps, hostile files and forged reports: what came of each.
reliability: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.reliability --write docs/reliability.md

# Change one thing in the code, and see whether a test fails: tools/mutants.py says how. The same command resumes.
mutants: setup
	OMP_NUM_THREADS=1 nice $(BIN)/python tools/mutants.py --again --write $(ARGS)

# Wheel, sdist and SBOM, by tools whose hashes are known; then both are tried where nothing else is installed.
TOOLS := build/tools

$(TOOLS)/.setup-stamp: requirements/tools.lock
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.lock
	@touch $@

dist: $(TOOLS)/.setup-stamp
	rm -rf dist
	$(TOOLS)/bin/python -m build --no-isolation --outdir dist .
	sed "s/^dynamic = .*/version = \"$$(ls dist/*.whl | cut -d- -f2)\"/" pyproject.toml > build/sbom.toml
	$(TOOLS)/bin/cyclonedx-py requirements --pyproject build/sbom.toml --of JSON -o dist/ruler-audit.cdx.json requirements/runtime.lock
	$(MAKE) try-dist

# Wheel and sdist without extras, without torch, and with all of them: `make try-dist ARGS="--only wheel sdist"` for some.
try-dist:
	$(PYTHON) tools/try_dist.py $(ARGS)

# Pin what pyproject.toml asks for. Versions that are pinned already stay; `make lock ARGS=--upgrade` takes the newest.
PIN = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate $(ARGS)

lock: $(TOOLS)/.setup-stamp
	$(PIN) pyproject.toml --extra dev -o constraints.txt
	$(PIN) --generate-hashes pyproject.toml --extra all -c constraints.txt -o requirements/runtime.lock
	$(PIN) --generate-hashes --group release -o requirements/tools.lock
	{ echo '# Every package of `make setup`, transitive ones too; made by `make lock`. pyproject.toml states the honest ranges.'; \
	  echo '# torch differs between indexes (CPU or CUDA); each wheel pins its own CUDA packages, which are left out here.'; \
	  grep -vE '^#|^(cuda|nvidia)-|^triton=' constraints.txt; } > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage ruler-demo
