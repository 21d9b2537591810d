# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp

# Tests on real data read RULER_DATA and are skipped, with a reason, where it is absent.
ifneq ($(wildcard ../shared/data),)
export RULER_DATA ?= $(abspath ../shared/data)
endif

.PHONY: setup demo test coverage check format bench slow mutants clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: setup
	$(BIN)/ruler demo --out ruler-demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m 'not slow and not gpu and not cluster'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m 'cluster and not slow' tests/cluster

# Lines and branches that no test of the default suite runs; fails under 92%.
coverage: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m 'not slow and not gpu and not cluster' --cov

slow: setup
	$(BIN)/python -m pytest -q -m slow
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -n 2 -m 'not slow and not gpu and not cluster' tests/laws tests/embeddings

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# `make bench ARGS="--quick"`, or another benchmark: `make bench ARGS="precision --json FILE"`.
bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

# Change one thing in the code, and see whether a test fails: tools/mutants.py says how. The same command resumes.
mutants: setup
	OMP_NUM_THREADS=1 nice $(BIN)/python tools/mutants.py --again --write $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage ruler-demo
