# Needs make, Python 3.11 or later and pip; everything else goes into .venv, once.
#
#   make PYTHON=/path/to/python3.11 ...   to choose the interpreter
#   make JOBS=2 test                      to run the tests in two processes: faster, and timings in it are looser
#   make TORCH_INDEX=URL ...              to install with one more package index: where the ordinary index has
#                                         only CUDA builds of torch, give one that has CPU builds

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?=
TORCH_INDEX ?=
JOBS ?=

# An environment of the caller's must not reach into ours.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

BIN := .venv/bin
STAMP := .venv/.installed
DISTRIBUTIONS := sdk core plugins/bagel plugins/orpheus plugins/vjepa2
# Whatever an installed copy is made from; sources are not in it, since the installs are editable.
INSTALLED_FROM := $(DISTRIBUTIONS:%=%/pyproject.toml) $(wildcard plugins/*/walkserve.json) constraints.txt requirements-dev.txt
QUIET := $(if $(CI),-qq --progress-bar off)

.PHONY: help
help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

.PHONY: install
install: $(STAMP) ## create .venv and install everything into it

.PHONY: demo
demo: $(STAMP) ## start a server with a small model and let it speak
	@echo "make: running examples/demo.py"
	@$(BIN)/python examples/demo.py

.PHONY: test
test: $(STAMP) ## run the tests, without the slow ones
	@echo "make: running the tests"
	@$(BIN)/python -m pytest $(if $(JOBS),-n $(JOBS) --dist loadfile)

.PHONY: test-all
test-all: $(STAMP) ## run all tests
	@echo "make: running all tests, the slow ones too"
	@$(BIN)/python -m pytest -m ""

.PHONY: lint
lint: $(STAMP) ## check style, formatting, types and the direction of imports
	@echo "make: ruff check"
	@$(BIN)/ruff check
	@echo "make: ruff format --check"
	@$(BIN)/ruff format --check
	@echo "make: mypy"
	@$(BIN)/mypy
	@echo "make: lint-imports"
	@$(BIN)/lint-imports --no-logo

.PHONY: format
format: $(STAMP) ## let ruff format the code and mend what it can
	@echo "make: ruff format, ruff check --fix"
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

.PHONY: clean
clean: ## remove .venv, caches and build products
	@echo "make: removing .venv, caches and build products"
	@rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@rm -rf $(foreach folder,$(DISTRIBUTIONS),$(folder)/build $(folder)/dist)
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One pip call for all of it: with torch and its constraint in the same call, pip resolves one set, once.
$(STAMP): $(INSTALLED_FROM)
	@if [ ! -x $(BIN)/python ]; then \
	    python=""; \
	    for candidate in $(if $(PYTHON),"$(PYTHON)",python3.11 python3 python3.12 python3.13); do \
	        if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	            python="$$candidate"; break; \
	        fi; \
	    done; \
	    if [ -z "$$python" ]; then \
	        echo "make: $(or $(PYTHON),python3) is not Python 3.11 or later;" \
	            "install one, or name one: make PYTHON=/path/to/python3.11 ..." >&2; \
	        exit 1; \
	    fi; \
	    echo "make: creating .venv with $$("$$python" --version)"; \
	    "$$python" -m venv .venv || { \
	        echo "make: $$python cannot create a virtual environment (on Debian: install python3-venv)" >&2; \
	        rm -rf .venv; exit 1; \
	    }; \
	fi
	@echo "make: installing walkserve and its tools into .venv (some minutes the first time)"
	@$(BIN)/python -m pip install $(QUIET) $(if $(TORCH_INDEX),--extra-index-url "$(TORCH_INDEX)") \
	    -c constraints.txt "$$(grep '^torch==' constraints.txt)" \
	    $(DISTRIBUTIONS:%=-e %) -r requirements-dev.txt
	@touch $@
