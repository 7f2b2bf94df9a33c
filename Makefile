# Two commands need nothing but Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

.PHONY: demo test docs check format clean

demo: $(STAMP)  ## play every policy; prints a table, writes the leaderboard under outputs/
	$(BIN)/python scripts/demo.py

test: $(STAMP)  ## the whole test suite
	$(BIN)/python -m pytest -n auto

docs: $(DOCS_STAMP)  ## the documentation site, with its notebooks executed: build/docs/index.html
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky -b html docs build/docs

check: $(STAMP)  ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed, not " + sys.version'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,render,dev]'
	touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $(DOCS_STAMP)

clean:
	rm -rf $(VENV) build dist outputs .pytest_cache .mypy_cache .ruff_cache
