# Two commands do all their own set-up on a fresh machine:
#   make ask Q="Is Paris the capital of France?"
#   make test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
Q ?= Is Paris the capital of France?

.PHONY: ask test check bench mutants clean

ask: export QUESTION = $(value Q)
ask: $(VENV)/.run
	@$(BIN)/odar ask "$$QUESTION"

test: check
	$(BIN)/pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/architecture

bench: $(VENV)/.dev
	$(BIN)/python scripts/bench.py

# Breaks the code in one place at a time: a test must notice each.
mutants: $(VENV)/.dev
	$(BIN)/python scripts/mutate.py

# A user's installation, then the tools that only developers need.
$(VENV)/.run: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing odar into $(VENV) (once)" && $(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
