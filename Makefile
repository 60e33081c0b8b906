# The whole workflow. Every target sets up what it needs; `make demo` and `make test` are all that a new machine takes.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# llama.cpp: only what is loaded, for any x86-64 CPU of the last ten years, so that a cached build serves them all.
X86_64 := -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
export CMAKE_ARGS ?= -DGGML_NATIVE=OFF $(if $(filter x86_64,$(shell uname -m)),$(X86_64)) \
	-DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/llama/tg_llama/native/library.cmake
# Tests start some hundred Pythons: without bytecode on disk each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
UV := $(or $(shell command -v uv),.cache/uv/bin/uv)
DEMO_MEMBERS := schema base flow gateway llama doors cli serve
MEMBERS := $(DEMO_MEMBERS) picker bedrock vertexai
PROJECTS := $(MEMBERS:%=%/pyproject.toml)
DIST ?= dist
# What takes a minute in all: the tests of single parts.
QUICK_TESTS := tests/unit tests/picker/core tests/picker/pools tests/conformance tests/planted_faults
# tests/broker_and_files.py divides the tests among the processes.
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder --max-worker-restart 0
INSTALL = $(UV) pip install -q --python $(BIN)/python
COMPILES = @scripts/require compiler && echo "The first time, llama.cpp is compiled: about two minutes on two cores ..."
EXPORT = $(UV) export -q --frozen --no-emit-workspace --no-annotate --no-header --format requirements-txt

# `PYTHON=python3.13 make test` makes .venv anew where it is of another Python than the one that is named.
ifneq ($(origin PYTHON),file)
ifneq ($(shell test -x $(BIN)/python && $(BIN)/python -V),$(shell $(PYTHON) -V))
RENEW := other-python
endif
endif

.PHONY: other-python help demo agent-demo serve test test-quick test-house test-clients-all test-connected check figures map deploy protocol bench soak planted-faults wheels install lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-16s %s\n", $$1, $$2}'

demo: $(VENV)/demo ## Stream an answer of the built-in demo model: no key, no broker, no download of a model
	@$(BIN)/tg-invoke-llm "You are a helpful assistant." "What is Apache Pulsar?"

agent-demo: $(VENV)/demo ## Ask an agent with two tools and a scripted model: no key, no network (Q="What is 2 * 21?")
	@BIN=$(BIN) scripts/agent-demo $(if $(Q),'$(Q)')

# Its options may ask for any provider, bus or door; without them the demo's packages are enough.
serve: $(VENV)/$(if $(ARGS),server,demo) ## Run the whole pipeline in one process, at http://localhost:8888/ (ARGS="--bus pulsar://...")
	@$(BIN)/tg-serve $(ARGS)

test: $(VENV)/ready ## Run all tests, with the real Apache Pulsar and the real model
	@scripts/require java
	TOKENGRID_REQUIRE_ALL=1 $(BIN)/pytest -n 5 $(SIDE_BY_SIDE) $(ARGS)

test-quick: $(VENV)/ready ## Run the tests of single parts, without broker and model: a minute
	$(BIN)/pytest -n 2 $(SIDE_BY_SIDE) --hypothesis-profile quick -m "not connected and not model" $(QUICK_TESTS) $(ARGS)

test-house: $(VENV)/ready ## Run all tests of one house, such as HOUSE=picker: those in tests/picker
	@test -d "tests/$(or $(HOUSE),-)" || { echo "Say which house: make test-house HOUSE=picker" >&2; exit 2; }
	$(BIN)/pytest -n 2 $(SIDE_BY_SIDE) tests/$(HOUSE) $(ARGS)

test-clients-all: $(VENV)/ready ## Run the newest versions of all clients of others, the large ones too, and print their table
	$(BIN)/python -m tests.clients --newest --all $(ARGS)
	$(BIN)/python -m tests.clients.open_webui_page

test-connected: $(VENV)/ready ## Run only the tests that need the real Apache Pulsar
	@scripts/require java
	TOKENGRID_REQUIRE_ALL=1 $(BIN)/pytest -m connected $(ARGS)

check: $(VENV)/ready ## Lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

figures: $(VENV)/ready ## Print the figures that the code is held to: sizes, circles, comments, types, the files of a request
	@$(BIN)/python -m scripts.figures

map: $(VENV)/ready ## Write MAP.md: where a subject is decided, and the first line of every module
	@$(BIN)/python -m scripts.map

deploy: $(VENV)/ready ## Write deploy/ anew from the tables of metrics: dashboards, rules, and the list of metrics
	@$(BIN)/python -m scripts.monitoring

protocol: | $(UV) ## Write Envoy's messages and their types anew from picker/tg_picker/extproc/external_processor.proto
	$(UV) run -q --no-project --with "grpcio-tools==1.85.*" python -m grpc_tools.protoc -I picker/tg_picker/extproc \
		--descriptor_set_out=picker/tg_picker/extproc/external_processor.binpb --pyi_out=picker/tg_picker/extproc \
		external_processor.proto
	mv picker/tg_picker/extproc/external_processor_pb2.pyi picker/tg_picker/extproc/wire.pyi

bench: $(VENV)/ready ## Measure the commands' first byte, and the pipeline against the bare broker and a bare proxy
	@scripts/require java
	$(BIN)/python -m bench.commands
	$(BIN)/python -m bench.pipeline $(ARGS)

soak: $(VENV)/ready ## Run real processes under load and random faults: nothing lost, hung, wrong or growing (MINUTES=10)
	@scripts/require java
	$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),10) $(ARGS)

planted-faults: $(VENV)/ready ## Plant one fault after the other in a copy of the code: the simulation or a test finds each
	$(BIN)/python -m tests.planted_faults $(ARGS)

wheels: | $(UV) ## Build the wheels of all parts into dist/
	$(UV) build -q --clear --wheel --all-packages --out-dir $(DIST)

install: wheels ## Install the server with every provider, without development tools (PREFIX=/opt/tokengrid)
	@scripts/require python compiler
	@test -n "$(PREFIX)" || { echo "Say where to install it: make install PREFIX=/opt/tokengrid" >&2; exit 2; }
	$(UV) venv -q --python $(PYTHON) $(PREFIX)
	$(UV) pip sync -q --python $(PREFIX)/bin/python --compile-bytecode --require-hashes requirements-server.lock
	$(UV) pip install -q --python $(PREFIX)/bin/python --no-deps --compile-bytecode $(DIST)/*.whl
	@rm -f $(PREFIX)/.lock # uv's, which anybody may write

lock: | $(UV) ## Resolve all dependencies anew into requirements*.lock (versions and hashes)
	$(UV) lock --upgrade
	$(EXPORT) --all-packages --all-extras --all-groups -o requirements.lock
	$(EXPORT) --package tokengrid-serve --no-dev -o requirements-demo.lock
	$(EXPORT) --package tokengrid-serve --no-dev --extra all -o requirements-server.lock

# One environment in three sizes, each with all of the one before: the demo, the whole server, the development tools.
# A machine for which these have no wheel is told so, in place of the errors of a compiler.
$(VENV)/demo: requirements-demo.lock $(PROJECTS) $(RENEW) | $(VENV)/bin/python
	$(INSTALL) --only-binary numpy --only-binary llguidance --no-deps --require-hashes -r $<
	$(INSTALL) --no-deps $(DEMO_MEMBERS:%=-e ./%)
	@touch $@

$(VENV)/server: requirements-server.lock $(PROJECTS) $(RENEW) | $(VENV)/bin/python
	$(COMPILES)
	$(INSTALL) --no-deps --require-hashes -r $<
	$(INSTALL) --no-deps $(MEMBERS:%=-e ./%)
	@touch $(VENV)/demo $@

$(VENV)/ready: requirements.lock $(PROJECTS) $(RENEW) | $(VENV)/bin/python
	$(COMPILES)
	$(UV) pip sync -q --python $(BIN)/python --require-hashes requirements.lock
	$(INSTALL) --no-deps $(MEMBERS:%=-e ./%)
	@touch $(VENV)/demo $(VENV)/server $@

$(VENV)/bin/python: $(RENEW) | $(UV)
	@scripts/require python
	@echo "Setting up $(VENV) ..."
	$(UV) venv -q --clear --python $(PYTHON) $(VENV)

.cache/uv/bin/uv:
	@scripts/require python
	@echo "Getting uv ..."
	@$(PYTHON) -m venv .cache/uv && .cache/uv/bin/pip install -q uv

clean: ## Remove what was set up here (not uv's and Maven's caches)
	rm -rf .venv .cache $(DIST)
