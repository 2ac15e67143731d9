# Everything goes into this clone: .venv (programs), .monkey (the record of quickstart's jobs), .cache.
# Only test hosts' root file system is kept outside: $XDG_CACHE_HOME/monkey-tests (default ~/.cache/monkey-tests).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help quickstart test faults lint clean test-system-packages

PYTHON ?= python3
VENV := $(CURDIR)/.venv
PIP_INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
PYTEST_ARGS ?=
# program:Debian package, for what tests use beyond Python
TEST_PROGRAMS := debootstrap:debootstrap ssh:openssh-client ip:iproute2 unshare:util-linux sshd:openssh-server git:git

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

quickstart: $(VENV)/.installed ## install into .venv, then run the example as a job on this machine
	@export MONKEY_HOME="$(CURDIR)/.monkey" PATH="$(VENV)/bin:$$PATH"; \
	trap 'monkey core stop' EXIT; \
	cd examples/mnist; \
	monkey run python3 mnist.py --learning-rate 0.14 --n-epochs 15; \
	juid=$$(monkey list jobs --json | python -c 'import json, sys; jobs = json.load(sys.stdin); print(jobs[-1]["juid"])'); \
	monkey info job "$$juid"

test: test-system-packages $(VENV)/.installed-dev ## install what tests need (as root, system packages too), run all tests
	@export PATH="$(VENV)/bin:$$PATH:/usr/sbin:/sbin"; \
	if [ "$$(id -u)" = 0 ]; then \
	    export MONKEY_REQUIRE_HOSTS=1; \
	else \
	    echo "not root: tests that need several machines (test hosts) are skipped"; \
	fi; \
	pytest $(PYTEST_ARGS)

faults: test-system-packages $(VENV)/.installed-dev ## break everything, for an hour or so; prints the table of faults
	@export PATH="$(VENV)/bin:$$PATH:/usr/sbin:/sbin"; \
	if [ "$$(id -u)" = 0 ]; then \
	    export MONKEY_REQUIRE_HOSTS=1; \
	else \
	    echo "not root: faults that need several machines (test hosts) or a small disk are skipped"; \
	fi; \
	mkdir -p .cache; \
	rm -f .cache/faults.jsonl; \
	pytest tests/faults --long --fault-table .cache/faults.jsonl $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev ## ruff, mypy, ansible-lint, ansible-test sanity
	@export PATH="$(VENV)/bin:$$PATH" ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/collections" ANSIBLE_ROLES_PATH="$(CURDIR)/roles"; \
	ruff check .; \
	mypy; \
	ansible-lint --offline --profile production; \
	tools/sanity

clean: ## remove what make made in this clone; quickstart's core and client end first
	@if [ -x $(VENV)/bin/monkey ] && [ -d .monkey ]; then MONKEY_HOME="$(CURDIR)/.monkey" $(VENV)/bin/monkey core stop || true; fi
	@for pid in $$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' .monkey/client/client.json 2>/dev/null); do \
	    if grep -qsF "$(CURDIR)/.monkey/client" "/proc/$$pid/cmdline"; then kill "$$pid"; fi; \
	done
	rm -rf .venv .monkey .cache .ansible .pytest_cache .mypy_cache .ruff_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

test-system-packages:
	@missing=; \
	for pair in $(TEST_PROGRAMS); do \
	    PATH="$$PATH:/usr/sbin:/sbin" command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ]; then \
	    echo "make test needs these Debian packages:$$missing. Install them, or run make test as root." >&2; exit 1; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get -qq update; \
	apt-get -qq install --yes --no-install-recommends $$missing

# A virtual environment that still runs is kept: what is in it may be newer than the stamps say, never older.
$(VENV)/.usable: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Monkey needs Python 3.11 or newer; $$(command -v $(PYTHON)) is $$($(PYTHON) --version 2>&1)" >&2; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	    if [ "$$(id -u)" != 0 ]; then \
	        echo "Python's venv is missing here: install the Debian package python3-venv, then run make again." >&2; exit 1; \
	    fi; \
	    apt-get -qq update; \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends python3-venv; \
	fi
	@$(VENV)/bin/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.usable
	@echo "installing Monkey into .venv"
	@$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.usable
	@echo "installing Monkey and what its tests need into .venv"
	@$(PIP_INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.installed
