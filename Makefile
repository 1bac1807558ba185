# Two commands do all their own set-up on a fresh machine:
#   make ask Q="Is Paris the capital of France?"
#   make test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
Q ?= Is Paris the capital of France?

.PHONY: ask test check chromium bench mutants clean

ask: export QUESTION = $(value Q)
ask: $(VENV)/.run
	@$(BIN)/odar ask "$$QUESTION"

test: check chromium
	$(BIN)/pytest

# The browser that the dashboard's tests drive. Where it cannot be had they are skipped, and say so.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium with apt-get (once)" && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	fi || echo "chromium cannot be installed: the browser tests will be skipped"

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
