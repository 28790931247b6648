# The ways in. `make help` lists them; each sets up its own virtual environment when there is none.
VENV ?= .venv
BIN := $(VENV)/bin
PY ?= $(BIN)/python
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup core demo test check gpu

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: ## make the virtual environment (VENV=.venv), if it is not there
	@PYTHON="$(PYTHON)" sh tools/setup.sh "$(VENV)"

core:
	@PYTHON="$(PYTHON)" sh tools/setup.sh "$(VENV)" core

demo: core ## judge kernels for Hopper and Blackwell, right and broken, and a recorded conversation, without a GPU
	@$(BIN)/ptxbench demo

test: setup ## run the tests that need no GPU
	@$(BIN)/pytest -n $(WORKERS) -m "not gpu"

check: setup ## style, types, layers, budgets, drift; repairs nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/budgets.py
	$(BIN)/pytest -q tests/house tests/schema/test_export.py

gpu: ## run the tests that need a GPU or torch; PY=python3 takes an environment that has both
	@if [ "$(PY)" = "$(BIN)/python" ]; then $(MAKE) --no-print-directory setup; fi
	@PYTHONPATH=src $(PY) -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || { \
	    echo "error: $(PY) has no torch that sees a GPU."; \
	    echo "remedy: on a GPU machine, $(BIN)/pip install -e '.[gpu]', or name a Python that has it: make gpu PY=python3."; \
	    exit 2; }
	PYTHONPATH=src $(PY) -m pytest tests/gpu tests/evaluate
	@echo "to record every kernel's verdict: PYTHONPATH=src $(PY) tests/gpu/record.py --out tests/data/gpu --repeat 10"
	@echo "to record what the emulator is compared with: PYTHONPATH=src $(PY) tests/gpu/record_emulator.py --out tests/data/emulator"
