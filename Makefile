# Every target works on a fresh machine that has Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
# A file's tests share compilations, so they stay on one worker; slow ones may move to an idle one.
FAST := -n auto --dist loadfile -m 'not slow'
SLOW := -n auto --dist worksteal -m slow

COMMA := ,
# An environment: its folder, the versions in it, the extras.
define fresh
$(PYTHON) -m venv $(1)
$(1)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(2) --editable '.[$(3)]'
touch $(1)/installed
endef

.PHONY: help env browser demo test test-slow test-doors test-oldest lint format docs bench breaks clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

env: .venv/installed  ## create .venv and install aisle into it

# The stamp is newer than the files that decide what is installed, so a second make installs nothing.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "aisle needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(call fresh,.venv,constraints.txt,dev)

demo: env  ## train four methods on digits and compare them, in minutes
	$(BIN)/aisle demo

# Only root can install it, and only where there is a network: without it one test is skipped.
browser:  ## try to install Chromium, in which a test opens the report
	@for name in chromium chromium-browser google-chrome; do \
	  command -v $$name >/dev/null 2>&1 && exit 0; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  export DEBIAN_FRONTEND=noninteractive; \
	  timeout 300 sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium' \
	    >/dev/null 2>&1 </dev/null && exit 0; \
	fi; \
	echo "no Chromium here: the test that opens the report in a browser will be skipped"

test: env  ## all tests but the slow ones
	$(BIN)/python -m pytest $(FAST)

# TESTS names some folders of them; all take about half an hour, and those of the report a browser.
test-slow: env $(if $(TESTS),,browser)  ## the slow tests
	$(BIN)/python -m pytest $(SLOW) $(TESTS)

# PyTorch and Flax are large, so they have an environment of their own; it takes some minutes to make.
.venv-doors/installed: pyproject.toml constraints.txt
	$(call fresh,.venv-doors,constraints.txt,dev$(COMMA)flax$(COMMA)torch)

.venv-oldest/installed: pyproject.toml constraints-oldest.txt
	$(call fresh,.venv-oldest,constraints-oldest.txt,dev)

test-doors: .venv-doors/installed  ## the fast tests that need PyTorch and Flax
	.venv-doors/bin/python -m pytest -m 'not slow' tests/doors tests/test_docstrings.py -k 'doors or from_ or to_torch'

# TESTS leaves some of them out, as by --ignore=tests/cli; a folder that is named is imported too early
# for the oldest jaxtyping. The oldest NumPy has no wheel for Python 3.13: take 3.11.
# The oldest Equinox uses names that the oldest JAX says are going.
test-oldest: .venv-oldest/installed  ## the fast tests with the oldest versions
	.venv-oldest/bin/python -m pytest $(FAST) -W ignore::DeprecationWarning $(TESTS)

lint: env  ## ruff and basedpyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: env  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: env  ## build the documentation into build/site, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: env  ## measure speed and memory against the limit and against others
	$(BIN)/python -m benchmarks.run

breaks: env  ## break the code on purpose, see the tests catch each break
	$(BIN)/python -m scripts.breaks

clean:  ## remove the environment and caches
	rm -rf .venv .venv-doors .venv-oldest .pytest_cache .ruff_cache src/*.egg-info
