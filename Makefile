# Every target sets up what it needs, and only when that is stale: the environment is synchronised
# when requirements.lock or pyproject.toml is newer than the stamp.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
UV := $(BIN)/uv
VERSIONS := .venv-versions
FUZZ := .venv-fuzz
# Byte code makes every start three times faster; some machines switch it off.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-long test-versions test-yarn test-kubernetes test-clusters test-clusters-short check java cases bench bench-live bench-capacity results ablation tuned results-live recorded soak chaos fuzz mutation sbom docs site pictures coverage typing fmt lock wheel clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: java ## run the main job (ARGS="--fast --policy ds2 ..." are passed on)
	@$(BIN)/penstock demo $(ARGS)

test: java ## everything that CI checks: style, types, layers, tests, cases
	@$(BIN)/python -m tools.run_tests static fast cases slow

test-fast: $(STAMP) ## the tests that start no real Spark, in under three minutes
	@$(BIN)/python -m tools.run_tests fast

test-long: java ## the tests on real Spark that CI has no time for, 20 min
	@$(BIN)/python -m tools.run_tests long

test-versions: java ## attach, up, down, sensor and doctor on each PySpark from 3.5 on, 10 min (ARGS="pyspark-4.2")
	@$(BIN)/python -m tools.versions $(ARGS); code=$$?; $(BIN)/python docs/generate.py; exit $$code

test-yarn: java ## Penstock on a real YARN on this machine, about 10 min (PART=short for less)
	$(BIN)/python -m pytest -s -m "yarn$(if $(PART), and $(PART))" tests/testbed/clusters $(ARGS)

test-kubernetes: java ## Penstock on a real Kubernetes on this machine; builds it the first time
	$(BIN)/python -m pytest -s -m "kubernetes$(if $(PART), and $(PART))" tests/testbed/clusters $(ARGS)

test-clusters: java ## the same on all cluster managers, standalone included
	$(BIN)/python -m pytest -s -m cluster tests/testbed/clusters $(ARGS)

test-clusters-short: java ## up, down, loss and restart on YARN and Kubernetes
	@$(BIN)/python -m tools.run_tests kubernetes yarn

java: $(STAMP)
	@$(BIN)/python -m penstock.testbed

check: $(STAMP) ## style, types, layers, duplicate code, generated docs
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.duplicates
	$(BIN)/python docs/generate.py --check

cases: $(STAMP) ## run numeric cases of the originals (FILES="a.json b.json")
	@$(BIN)/python -m tests.conformance.runner $(DONE) $(FILES)

bench: $(STAMP) ## measure speed; writes benchmarks/results.json
	@$(BIN)/python -m benchmarks.run

bench-live: java ## measure speed on real Spark, about 15 min; adds to benchmarks/results.json
	@$(BIN)/python -m benchmarks.live $(ARGS)

bench-capacity: java ## believed against saturated capacity on real Spark, 3 min per size (ARGS="--job q11 --sizes 1 2 4 8")
	@$(BIN)/python -m benchmarks.capacity $(ARGS)

results: $(STAMP) ## compare all policies in the lab (TRACES="day.csv ..." ARGS="--seeds 1..5")
	@$(BIN)/python -m docs.results $(TRACES) $(ARGS)

tuned: $(STAMP) ## tune all rivals for the results, hours; resumes what is missing (TRACES="day.csv ...")
	@$(BIN)/python -m docs.tune $(TRACES) $(ARGS)

ablation: $(STAMP) ## what each part of the default policy is worth in the lab (TRACES="day.csv ...")
	@$(BIN)/python -m docs.ablation $(TRACES) $(ARGS)

results-live: java ## make the missing runs on real Spark, hours on a quiet machine (PART=60min), and their pages
	@$(BIN)/python docs/results_live.py --play $(or $(PART),24h)

recorded: java ## record journals of real runs for tests/recorded, about 6 min each (ARGS="q1-follows")
	@$(BIN)/python -m tools.record_journals record $(ARGS)

soak: java ## scale a real job for hours (ARGS="--minutes 30")
	@$(BIN)/python -m benchmarks.soak $(ARGS)

chaos: java ## break a real job in many ways; resumes (ARGS="--minutes 60 --seed 1 --parts executor")
	@$(BIN)/python -m tests.chaos $(ARGS)

fuzz: $(STAMP) ## hostile input for everything that reads, by coverage (ARGS="--minutes 10 journal toml")
	@test -d $(FUZZ)/atheris || $(UV) pip install --quiet --python $(BIN)/python --target $(FUZZ) atheris || true
	@PYTHONPATH=$(FUZZ) $(BIN)/python -m tests.fuzz $(ARGS)

mutation: $(STAMP) ## change the code and see whether a test notices (ARGS="guards knowledge")
	@$(BIN)/python -m tools.mutation $(ARGS)

sbom: $(STAMP) ## what is installed, as a CycloneDX file: penstock.cdx.json
	@$(UV) tool run --quiet --from cyclonedx-bom cyclonedx-py environment --pyproject pyproject.toml \
	  --output-format JSON --output-file penstock.cdx.json $(BIN)/python

docs: $(STAMP) ## write the generated parts of the docs, then build the site
	@$(BIN)/python docs/generate.py
	@$(MAKE) --no-print-directory site

site: $(STAMP) ## build the site into site/; a broken link or a page in no list fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(STAMP) ## make the pictures of the docs again; pages need Chromium (ARGS="--journal demo.jsonl")
	@$(BIN)/python -m tools.pictures $(ARGS)

coverage: $(STAMP) ## lines and branches that the fast tests run, against the goals; takes some minutes
	@$(BIN)/python -m tools.coverage $(ARGS)

typing: $(STAMP) ## how much of the public API has types; needs Node.js
	@$(BIN)/python -m tools.typing_score

fmt: $(STAMP) ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format --quiet .

wheel: $(STAMP) ## build the wheel
	$(UV) build --quiet --no-build-isolation --wheel --python $(BIN)/python

lock: $(UV) ## pin all dependencies again
	$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	  --group dev --extra spark --extra lab --extra jobs --extra msk pyproject.toml -o requirements.lock

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) $(VERSIONS) $(FUZZ) penstock.cdx.json dist build runs site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml | $(UV)
	@echo "setting up $(VENV) ..."
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Penstock needs Python 3.11 or newer; name it with make PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
