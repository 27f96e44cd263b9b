# Every target that needs the environment sets it up first, so `make train` and `make test` are enough in a fresh clone.

VENV         := .venv
BIN          := $(VENV)/bin
STAMP        := $(VENV)/.set-up
TORCH        := 2.13.0
TORCH_STAMP  := $(VENV)/.torch-$(TORCH)
SITE         := build/site
MAPPED       := shaders native_backends
TRAIN_ARGS   ?=
PYTEST_ARGS  ?=

# OPTIRS_REQUIRE lists what has to be there for the tests (vulkan,cpu,torch): a skip for one of these is a failure.
comma        := ,
REQUIRED     := $(subst $(comma), ,$(OPTIRS_REQUIRE))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup train test check bench wheel format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything pinned, and look for a GPU driver

$(STAMP): pyproject.toml requirements.lock
	@test -x $(BIN)/pip || sh scripts/create_venv.sh $(VENV)
	$(BIN)/python -m pip install -qq --constraint requirements.lock --editable '.[dev]'
	@sh scripts/setup_gpu.sh $(BIN)/python
	@touch $@

$(TORCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install -qq torch==$(TORCH)
	@touch $@

train: setup ## train on the handwritten digits (TRAIN_ARGS='--device cpu --epochs 30')
	$(BIN)/optirs-web train digits $(TRAIN_ARGS)

test: setup $(if $(filter torch,$(REQUIRED)),$(TORCH_STAMP)) ## run the tests (OPTIRS_REQUIRE=vulkan,cpu,torch; PYTEST_ARGS='-k adamw')
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: setup ## measure the start-up, and the optimizer step beside a copy
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/optimizer_step.py

# Types and layers are checked on the installed wheel: there the mapped folders lie inside optirs_web, as users get them.
check: setup wheel ## formatting, lint, layers, and types on the built wheel
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	cd $(SITE) && $(CURDIR)/$(BIN)/lint-imports --config $(CURDIR)/pyproject.toml --no-cache --no-logo
	cd $(SITE) && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/build/mypy -p optirs_web

# build/lib is setuptools' own; it keeps files that are gone from the sources. The comparison finds what package-data
# or the list of packages in pyproject.toml leaves out.
wheel: setup
	@rm -rf build/lib build/bdist.* build/wheel $(SITE) && mkdir -p build/wheel
	$(BIN)/python -m build --wheel --outdir build/wheel . > build/wheel/log 2>&1 || { cat build/wheel/log; exit 1; }
	$(BIN)/python -m pip install -qq --no-deps --target $(SITE) build/wheel/*.whl
	@diff -rq $(addprefix -x ,__pycache__ $(MAPPED)) optirs_web $(SITE)/optirs_web
	@for folder in $(MAPPED); do diff -rq -x __pycache__ $$folder $(SITE)/optirs_web/$$folder || exit 1; done

format: setup ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what was built, and the environment
	rm -rf build dist $(VENV) *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
