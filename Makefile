# The verbs that people and CI call. They need Python 3.11 or newer and make, and install the rest
# into .venv.
SHELL := /bin/sh
CANDIDATES := python3.11 python3.12 python3.13 python3
PYTHON ?= $(shell for p in $(CANDIDATES); do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; \
  done)
VENV := .venv
BIN := $(VENV)/bin
# Extra arguments for pip, for example an index with CPU builds of torch (see README.md).
PIP_ARGS ?=
# Extra arguments for `python -m ninfer bench`, for example a benchmark's name.
BENCH ?= --help
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PYTEST := $(BIN)/python -m pytest -q
INSTALL := $(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt

# Clients of the server that e2e runs. npm is one of requirements.txt, so nothing else is needed.
CLIENTS := build/clients
CLIENT_FILES := tests/e2e/clients

BROWSER := $(or $(CHROMIUM),$(shell command -v chromium chromium-browser google-chrome))
SYSTEMD := $(shell command -v systemd-analyze 2>/dev/null)
CHROOT := $(shell [ "$$(id -u)" = 0 ] && command -v chroot 2>/dev/null)

.PHONY: help install demo test check fix e2e extras soak gpu bench docs release

help:
	@echo "verbs: demo test check fix e2e extras soak gpu bench docs release (see CONTRIBUTING.md)"

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "ninfer needs Python 3.11 or newer and found none;" \
	  "install one or set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "$(PYTHON) cannot be run or is too old: ninfer needs Python 3.11 or newer" >&2; \
	    exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# Two stamps, so that the demo does not wait for the test tools.
$(VENV)/runtime: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing ninfer and torch into $(VENV) (minutes on the first run)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing ninfer, torch and the test tools into $(VENV) (minutes on the first run)"
	@$(INSTALL) -e '.[dev]'
	@$(INSTALL) --no-deps trl # tests read its chat templates; what it imports has 300 MB
	@touch $@ $(VENV)/runtime

install: $(VENV)/dev

# Three questions to the trained model of the package, whose answers are checked.
demo: $(VENV)/runtime
	@$(BIN)/python -m tools.demo

test: install
	$(PYTEST) -n 2

check: install
	@$(BIN)/ruff format --check --output-format concise .
	@$(BIN)/ruff check --output-format concise .
	@$(BIN)/mypy
	@$(BIN)/python -m tools.floors
	@$(BIN)/python -m tools.gen_docs --check
	@$(BIN)/python -m tools.check_release

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not `npm ci`: it refuses a lock without the programs of other systems, which not all registries have.
$(CLIENTS)/ready: $(wildcard $(CLIENT_FILES)/*.txt $(CLIENT_FILES)/package*.json)
	@echo "installing clients of the server into $(CLIENTS) (a minute, 2 GB)"
	@rm -rf $(CLIENTS)
	@$(PYTHON) -m venv $(CLIENTS)
	@{ $(CLIENTS)/bin/python -m pip install --quiet --no-compile $(PIP_ARGS) \
	    -r $(CLIENT_FILES)/requirements.txt -c $(CLIENT_FILES)/constraints.txt && \
	  cp $(CLIENT_FILES)/package.json $(CLIENT_FILES)/package-lock.json $(CLIENTS) && cd $(CLIENTS) && \
	  PATH="$$PWD/bin:$$PATH" npm install --no-audit --no-fund --loglevel=error >/dev/null; } || \
	  { echo "the clients could not be installed, so no test of e2e was run; those without them:" \
	    "$(PYTEST) -m 'e2e and not clients'" >&2; exit 1; }
	@touch $@

e2e: install $(CLIENTS)/ready
	@$(if $(BROWSER),,echo "no Chromium: the tests of the page are left out (apt-get install chromium)")
	@$(if $(SYSTEMD),,echo "no systemd-analyze: the unit is not shown to it (apt-get install systemd)")
	@$(if $(CHROOT),,echo "not root: the image is checked, not run by chroot")
	$(PYTEST) -m "e2e$(if $(BROWSER),, and not browser)$(if $(SYSTEMD),, and not systemd)$(if \
	  $(CHROOT),, and not chroot)"

extras: install
	@$(BIN)/python -m tools.extras

# Ray is for these tests only, so no other verb pays for its installation.
soak: install
	@$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[cluster]'
	@mkdir -p build
	@$(PYTEST) -m soak --timeout 7200 --junitxml=build/soak.xml; status=$$?; \
	  $(BIN)/python -m tools.soak_report build/soak.xml docs/reliability.md && exit $$status

gpu: install
	$(PYTEST) -m gpu

bench: install
	$(BIN)/python -m ninfer bench $(BENCH)

docs: install
	$(BIN)/python -m tools.gen_docs

release: check test e2e
	@rm -rf dist
	$(BIN)/python -m tools.release dist
