# `make demo` and `make test` need nothing but a Debian-like machine with Python 3.11 or newer: what is missing they
# install, Python packages into .venv/ and .environments/, Debian packages only when run by root.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
INSTALLED := .venv/.installed
PYTEST := $(BIN)/python -m pytest

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## Start a yard, train a network on it, look at it with the aws CLI, stop it.
	@$(BIN)/python -m examples.demo

test: $(INSTALLED) packages ## Run the unit, contract and wire tests, and one whole job per feature.
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow and not system"

system: $(INSTALLED) packages ## Run the other tests of whole jobs, clients and pages of docs/.
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "system and not slow"

check: $(INSTALLED) ## Check format, lint and types.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: $(INSTALLED) ## Format, and apply the safe fixes of the linter.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

conformance: $(INSTALLED) packages ## Run every client of the matrix, each in its own environment.
	$(PYTEST) tests/conformance -m "" -n $(WORKERS) --dist worksteal

faults: $(INSTALLED) packages ## Run the long crash runs and the long fuzz runs.
	$(PYTEST) tests/faults tests/system tests/contract -m ""
	$(BIN)/python -m tests.ray_cluster 3 4 $(PYTEST) tests/faults/test_hostile_phases.py -m "" -k cluster

# Mutants of each module, or all of them, which takes hours; AREAS names a few of those in scripts/mutants/core.py.
MUTANTS ?= 8
AREAS ?=
mutants: $(INSTALLED) ## Plant small faults in the core, and say which of them no test notices.
	$(BIN)/python -m scripts.mutants --sample $(MUTANTS) --workers $(WORKERS) $(AREAS)

# What yards promise of jobs. Those of spot jobs have a cluster with room for one.
BARS := training channels pipes checkpoints distributed debugger tuning training_rules profiled_jobs profiler
ray: $(INSTALLED) packages ## Run the tests of whole jobs again, on a Ray cluster of pretended machines.
	$(BIN)/python -m tests.ray_cluster 3 4 $(PYTEST) $(BARS:%=tests/system/test_%.py)
	$(BIN)/python -m tests.ray_cluster 1 1 $(PYTEST) tests/system/test_spot.py

bench: $(INSTALLED) ## Measure the yard beside moto, bare Python and Ray, each with its goal.
	$(BIN)/python -m benchmarks.s3_front
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.start_latency
	$(BIN)/python -m benchmarks.cli_latency
	$(BIN)/python -m benchmarks.short_jobs
	$(BIN)/python -m benchmarks.tuning_throughput
	$(BIN)/python -m benchmarks.file_channel
	$(BIN)/python -m benchmarks.pipe_channel
	$(BIN)/python -m benchmarks.fast_file
	$(BIN)/python -m benchmarks.rank_libraries
	$(BIN)/python -m benchmarks.distributed
	$(BIN)/python -m benchmarks.tensor_reading
	$(BIN)/python -m benchmarks.log_flood
	$(BIN)/python -m benchmarks.list_jobs
	$(BIN)/python -m benchmarks.dashboard
	$(BIN)/python -m benchmarks.dashboard_peers
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.cluster
	$(BIN)/python -m benchmarks.hook_overhead
	$(BIN)/python -m benchmarks.step_timer
	$(BIN)/python -m benchmarks.sampler
	$(BIN)/python -m benchmarks.trace_tables
	$(BIN)/python -m benchmarks.trace_timeline
	$(BIN)/python -m benchmarks.profiler_report
	$(BIN)/python -m benchmarks.profile_evaluation
	$(BIN)/python -m benchmarks.tuning
	$(BIN)/python -m benchmarks.tuning.early_stopping
	$(BIN)/python -m benchmarks.tuning.warm_start

table: $(INSTALLED) ## Judge healthy and faulty trainings by every rule, and write what they find into docs/.
	$(BIN)/python -m benchmarks.rule_table

examples: $(INSTALLED) ## Run every program under examples/ and every page of docs/, each against a yard of its own.
	$(PYTEST) tests/docs -m ""

docs: $(INSTALLED) ## Write the generated pages of docs/ anew.
	$(BIN)/python scripts/generate_docs.py

clean: ## Remove what the other targets made, but not the environments.
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/results
	find src tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove the environments as well.
	rm -rf .venv .environments

packages: ## Install the Debian packages the tests use; without root, say which are missing.
	@scripts/debian-packages

$(INSTALLED): pyproject.toml scripts/python-environment
	scripts/python-environment "$(PYTHON)"
	touch $@

.PHONY: help demo test system check fix conformance faults mutants ray bench table examples docs clean distclean packages
