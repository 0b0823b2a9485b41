# Every target sets up what it needs, and only when it is stale: the environment is rebuilt
# when requirements.lock or pyproject.toml is newer than the stamp.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types layers cases bench docs fmt lock wheel clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Penstock needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . 
	@touch $@

lock: ## pin all dependencies again
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet uv; }
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group dev --extra spark pyproject.toml -o requirements.lock
