# `make demo` opens the working product; `make test` installs and runs all tests.
# Everything is installed into .venv; nothing outside this folder is changed.

PYTHON ?= python3
PORT ?=
GPUS ?= simulated
VENV := .venv
BIN := $(VENV)/bin
LABEXTENSION := jupyter_gpupool/labextension/package.json
PROXY := $(VENV)/proxy/.installed
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] && echo --allow-root)

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed $(PROXY) $(LABEXTENSION) ## a JupyterHub with a simulated pool (PORT=8000, GPUS=real for this machine's cards)
	@$(BIN)/jupyter gpupool demo $(if $(PORT),--port $(PORT)) --gpus $(GPUS) $(AS_ROOT) $(ARGS)

test: $(VENV)/.test $(PROXY) $(LABEXTENSION) ## all tests (ARGS="-k name" for some)
	@$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.lint $(VENV)/.test ## style, types, import contract, Python 3.9 for the client
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/vermin -q --no-tips -t=3.9- --violations jupyter_gpupool/client jupyter_gpupool/notebook jupyter_gpupool/__init__.py

format: $(VENV)/.lint ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.test $(PROXY) .venv-bench/.installed ## the measurements; prints a table and writes bench.json
	@$(BIN)/python -m tests.benchmarks $(ARGS)

wheel: $(VENV)/.installed ## a wheel that users install without Node
	@$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean: ## remove what make has built
	rm -rf $(VENV) .venv-bench .demo dist labextension/node_modules labextension/lib jupyter_gpupool/labextension

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; this is $$($(PYTHON) --version 2>&1). Try: make demo PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python cannot make a virtual environment (on Debian: apt-get install python3-venv)."; exit 1; }
	@touch $@

# The Lab extension is a step of its own below, so that its progress shows and only it needs Node.
INSTALL = HATCH_BUILD_NO_HOOKS=true $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	@echo "[1/3] Installing jupyter-gpupool, JupyterLab and JupyterHub into $(VENV) (one to three minutes the first time) ..."
	@$(INSTALL) ".[tour,hub]"
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@echo "      Installing what the tests need ..."
	@$(INSTALL) ".[tour,hub,test]"
	@touch $@

$(VENV)/.lint: $(VENV)/.installed
	@$(INSTALL) ".[tour,hub,test,lint]"
	@touch $@

.venv-bench/.installed:
	@echo "      Installing jupyter-scheduler into .venv-bench, to measure beside it ..."
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check jupyterlab jupyter-scheduler
	@touch $@

$(VENV)/.node: | $(VENV)/.installed
	@command -v node >/dev/null || \
	  { echo "Node 20 or newer is needed for JupyterHub's proxy and the Lab extension (on Debian: apt-get install nodejs npm)."; exit 1; }
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || \
	  { echo "Node 20 or newer is needed; this is $$(node --version)."; exit 1; }
	@touch $@

$(PROXY): hub_config/proxy/package.json hub_config/proxy/package-lock.json | $(VENV)/.node
	@echo "[2/3] Installing JupyterHub's proxy ..."
	@mkdir -p $(@D) && cp hub_config/proxy/package.json hub_config/proxy/package-lock.json hub_config/proxy/.npmrc $(@D)/
	@npm ci --prefix $(@D) --ignore-scripts --loglevel=error >/dev/null || \
	  { echo "JupyterHub's proxy could not be installed from the npm registry; npm says above why."; exit 1; }
	@touch $@

$(LABEXTENSION): $(wildcard labextension/src/* labextension/src/*/*) $(wildcard labextension/style/*) labextension/package.json | $(VENV)/.node
	@echo "[3/3] Building the Lab extension (about a minute the first time) ..."
	@cd labextension && PATH="$(CURDIR)/$(BIN):$$PATH" && { jlpm install --immutable && jlpm build:prod; } >build.log 2>&1 || \
	  { tail -n 30 build.log; echo "The Lab extension did not build; all of its output is in labextension/build.log."; exit 1; }
	@cp -R jupyter_gpupool/labextension/. $(VENV)/share/jupyter/labextensions/jupyter-gpupool/
	@touch $@
