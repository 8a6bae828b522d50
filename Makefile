# Needs python3.11 or newer and make; sets up .venv by itself.
# `make PYTHON=/path/to/python` names the interpreter, `make test ARGS="-k cache"` passes arguments to pytest.

PYTHON ?= python3 python3.11 python3.12 python3.13 python3.14
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LINKS := build/typecheck/hf_seq2seq_attn

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types gpu-check
.DELETE_ON_ERROR:

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*  ## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(INSTALLED)  ## train on the Greek New Testament, align, score, write build/demo/report.html
	$(BIN)/seq2seq-attn demo

test: $(INSTALLED)  ## run the tests, offline
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

check: lint types  ## ruff lint, ruff format, mypy

lint: $(INSTALLED)  ## ruff lint and ruff format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# mypy does not follow the import hook of an editable install, so it reads the three rooms as links in one package.
types: $(INSTALLED)  ## mypy
	@rm -rf $(LINKS) && mkdir -p $(LINKS)
	@cd $(LINKS) && ln -s ../../../hf_seq2seq_attn/*.py ../../../hf_seq2seq_attn/py.typed ../../../training ../../../probing .
	cd build/typecheck && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p hf_seq2seq_attn

gpu-check: $(INSTALLED)  ## on a machine with a GPU: a bf16 training step, generate, maps, both attentions
	$(BIN)/python benchmarks/gpu_check.py

# The build backend and what must be compiled come first: the rest then builds in place, and a second run finds all there
# and asks no network.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt 'setuptools>=77' 'eflomal>=2'
	$(BIN)/python -m pip install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

$(BIN)/python:
	@for python in $(PYTHON); do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			$$python -m venv $(VENV); exit; \
		fi; \
	done; \
	echo 'no Python 3.11 or newer among: $(PYTHON). Name one: make PYTHON=/path/to/python' >&2; exit 1
