# Everything lives in .venv/ at the top of the repo. `make demo` and `make test` need Python 3.11+, make and g++.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint sanitize serve bench clean

demo: .venv/installed
	$(BIN)/ratoon pull smollm2
	$(BIN)/ratoon demo

# Gemma comes under terms of use, which the pull names; `.venv/bin/pytest` alone skips its tests.
test: .venv/installed-dev
	$(BIN)/ratoon pull smollm2
	$(BIN)/ratoon pull gemma3-270m
	$(BIN)/pytest

serve: .venv/installed-serve
	$(BIN)/ratoon pull smollm2
	$(BIN)/ratoon serve smollm2

# What can be set: make bench BENCH='--quick --out before.json'
bench: .venv/installed-dev
	$(BIN)/ratoon pull smollm2
	$(BIN)/python bench/run.py $(BENCH)

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Both builds and their tests; what the last run found is in native/README.md.
sanitize: .venv/installed-dev
	native/sanitize.sh address
	native/sanitize.sh thread

clean:
	rm -rf .venv build

.venv/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Ratoon needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

# One stamp for each set of extras; a larger set includes the smaller ones.
SOURCES := .venv/bin/pip pyproject.toml CMakeLists.txt $(wildcard native/*)

.venv/installed: $(SOURCES)
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/installed-serve: $(SOURCES)
	$(BIN)/pip install --quiet --editable '.[serve]'
	touch .venv/installed $@

.venv/installed-dev: $(SOURCES)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch .venv/installed .venv/installed-serve $@
