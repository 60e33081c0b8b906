# The whole workflow. Every target sets up what it needs; `make demo` and `make test` are all that a new machine takes.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
# llama.cpp: only what the binding loads, for any x86-64 CPU of the last ten years, so that a cached build serves them all.
X86_64 := -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
export CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DGGML_NATIVE=OFF $(if $(filter x86_64,$(shell uname -m)),$(X86_64)) \
	-DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/scripts/llama-without-common.cmake
UV := $(or $(shell command -v uv),.cache/uv/bin/uv)
MEMBERS := schema base flow bedrock vertexai gateway cli serve

# `PYTHON=python3.13 make test` makes .venv anew where it is of another Python than the one that is named.
ifneq ($(origin PYTHON),file)
ifneq ($(shell test -x $(BIN)/python && $(BIN)/python -V),$(shell $(PYTHON) -V))
RENEW := other-python
endif
endif

.PHONY: other-python help demo agent-demo serve test test-quick test-connected check figures bench soak lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-16s %s\n", $$1, $$2}'

demo: .venv/ready ## Stream an answer of the built-in demo model: no key, no broker, no download of a model
	@$(BIN)/tg-invoke-llm "You are a helpful assistant." "What is Apache Pulsar?"

agent-demo: .venv/ready ## Ask an agent with two tools and a scripted model: no key, no network (Q="What is 2 * 21?")
	@scripts/agent-demo $(if $(Q),'$(Q)')

serve: .venv/ready ## Run the whole pipeline in one process, at http://localhost:8888/ (ARGS="--bus pulsar://...")
	@$(BIN)/tg-serve $(ARGS)

test: .venv/ready ## Run all tests, with the real Apache Pulsar and the real model
	@scripts/require java
	TOKENGRID_REQUIRE_PULSAR=1 $(BIN)/pytest $(ARGS)

test-quick: .venv/ready ## Run the tests that need neither broker, nor model, nor the predecessor
	$(BIN)/pytest -m "not connected and not model and not predecessor" $(ARGS)

test-connected: .venv/ready ## Run only the tests that need the real Apache Pulsar
	@scripts/require java
	TOKENGRID_REQUIRE_PULSAR=1 $(BIN)/pytest -m connected $(ARGS)

check: .venv/ready ## Lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

figures: .venv/ready ## Print the figures that the code is held to: sizes, circles, comments, types, the files of a request
	@$(BIN)/python -m scripts.figures

bench: .venv/ready ## Measure the pipeline against the bare broker and a bare proxy, side by side
	@scripts/require java
	$(BIN)/python -m bench.pipeline $(ARGS)

soak: .venv/ready ## Run real processes under load and random faults: nothing lost, hung, wrong or growing (MINUTES=10)
	@scripts/require java
	$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),10) $(ARGS)

lock: ## Resolve all dependencies anew into requirements.lock (versions and hashes)
	$(UV) lock --upgrade
	$(UV) export -q --no-emit-workspace --all-packages --all-extras --all-groups --no-annotate --no-header \
		--format requirements-txt -o requirements.lock

.venv/ready: requirements.lock $(MEMBERS:%=%/pyproject.toml) $(RENEW) | $(UV)
	@scripts/require python compiler
	@echo "Setting up .venv (the first time compiles llama.cpp: about two minutes on two cores) ..."
	@test -x $(BIN)/python -a -z "$(RENEW)" || $(UV) venv -q --clear --python $(PYTHON) .venv
	$(UV) pip sync -q --require-hashes requirements.lock
	$(UV) pip install -q --no-deps $(MEMBERS:%=-e ./%)
	@touch $@

.cache/uv/bin/uv:
	@scripts/require python
	@echo "Getting uv ..."
	@$(PYTHON) -m venv .cache/uv && .cache/uv/bin/pip install -q uv

clean: ## Remove what was set up here (not uv's and Maven's caches)
	rm -rf .venv .cache
