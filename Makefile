# The commands of the README. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.headwater-installed

.PHONY: help install ext test lint demo bench clean

ext:  ## Compile the hot modules in place; ONLY="a.py b.py" for some of them
	@mkdir -p build; HEADWATER_EXT="$(ONLY)" flock build/.lock $(BIN)/python setup.py -q build_ext --inplace -j 2
