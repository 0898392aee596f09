# Two commands do all the set-up: `make demo` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test lint campaign mutants bench docs screenshots lock clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo  ## a living lake in the browser: a server, a shop, a fleet of rings, Spark
	@$(BIN)/lakebed demo $(ARGS)

test: $(VENV)/.dev lint  ## format, lint, types, import layers and all tests of the default run
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check --quiet src tests benchmarks
	$(BIN)/ruff check --quiet src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

campaign: $(VENV)/.dev  ## the long runs: more examples, more kills, under strace
	LAKEBED_CAMPAIGN=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

mutants: $(VENV)/.dev  ## change the code on purpose, and count the changes that no test notices
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(VENV)/.bench  ## measure against the peers and the targets; prints the environment
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.dev  ## regenerate the pages that are made from the code
	$(BIN)/python -m lakebed.cli.reference > docs/cli.md
	$(BIN)/python -m lakebed.views.reference docs/views.md

screenshots: $(VENV)/.dev  ## take the pictures of the docs again (needs Chromium)
	$(BIN)/python -m tests.web.screenshots

lock:  ## pin the dependencies again (needs uv); each list agrees with the longer ones
	uv pip compile pyproject.toml --all-extras --group build --group dev --group bench $(LOCK) -o requirements/bench.txt
	uv pip compile pyproject.toml --all-extras --group build --group dev -c requirements/bench.txt $(LOCK) -o requirements/dev.txt
	uv pip compile pyproject.toml --extra demo --group build -c requirements/dev.txt $(LOCK) -o requirements/demo.txt
LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate

clean:  ## remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "lakebed needs Python 3.11 or newer; say which with: make PYTHON=python3.11 …" >&2; exit 1; }
	@echo "making $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml requirements/demo.txt | $(BIN)/python
	@echo "installing what lakebed needs into $(VENV) (once; some minutes on a slow line) …"
	@$(PIP) --require-hashes --requirement requirements/demo.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.demo | $(BIN)/python
	@echo "installing what the tests need into $(VENV) (once) …"
	@$(PIP) --require-hashes --requirement requirements/dev.txt
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.dev | $(BIN)/python
	@echo "installing the peers for the benchmarks into $(VENV) (once) …"
	@$(PIP) --require-hashes --requirement requirements/bench.txt
	@touch $@
