# The verbs that people and CI call. `make demo` and `make test` need only Python 3.11+ and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Extra arguments for pip, for example an index with CPU builds of torch.
PIP_ARGS ?=
export OMP_NUM_THREADS ?= 1

.PHONY: install demo test check fix e2e soak gpu bench docs release

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ninfer needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	touch $@

install: $(VENV)/installed

test: install
	$(BIN)/python -m pytest -n 2 -q

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
