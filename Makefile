# Each target does all its own set-up: a fresh clone and `make demo` or `make test` is enough.
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -eu -o pipefail -c
# An owner's Python keeps what it has compiled. Where this is set, each of hundreds of processes compiles all again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo demo-bench docs test test-more test-long test-real release link setup lab-deps clean bench

help: ## what can be made, with its minutes on two cores
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

demo: ## 6 min: four virtual Sparks from bare to verified fabric, on this machine
	venv=$$(python3 tools/setup.py newest)
	"$$venv/bin/python" tools/demo.py

demo-bench: ## 15 min, 5 GB: a small real model served on the CPU, measured, and its garbage caught
	venv=$$(python3 tools/setup.py newest)
	"$$venv/bin/python" tools/demo_bench.py

docs: ## 2 min: the documentation site, build/docs/html
	venv=$$(python3 tools/setup.py docs)
	"$$venv/bin/python" tools/docs.py

test: ## 6 min: what finds most faults; no root, no virtual machine
	venv=$$(python3 tools/setup.py newest)
	"$$venv/bin/python" tools/run_tests.py test $(STAGES)

test-more: setup lab-deps ## 45 min, 5 GB: the rest of what CI runs: both cores, sanity, API, engines' parsers, four lab nodes
	python3 tools/setup.py docs
	.venv/$$(ls .venv | grep -v docs | sort | tail -n 1)/bin/python tools/run_tests.py more $(STAGES)

test-long: setup lab-deps ## 9 h: everything: every fault, every boundary, both cores in the lab, real engines
	python3 tools/setup.py docs
	.venv/$$(ls .venv | grep -v docs | sort | tail -n 1)/bin/python tools/run_tests.py long $(STAGES)

test-real: setup lab-deps ## 60 min: real K3s, Multus and SR-IOV device plugin from their releases, on lab nodes
	.venv/$$(ls .venv | grep -v docs | sort | tail -n 1)/bin/python tools/run_tests.py long releases

bench: setup lab-deps ## 20 min: the figures in benchmarks/results
	export PATH="$$PWD/.venv/$$(ls .venv | grep -v docs | sort | tail -n 1)/bin:$$PATH"
	python benchmarks/plan_time.py
	python benchmarks/verdicts.py
	python benchmarks/launch_plans.py
	python tools/with_lab.py 4 python benchmarks/fabric_time.py

release: ## 2 min: rehearse a release in a copy: changelog, archive, checksum, importer, installed elsewhere; nothing is tagged
	venv=$$(python3 tools/setup.py newest)
	"$$venv/bin/python" tools/rehearse_release.py build/release

link: ## 1 s: let a checkout resolve its own names (dgxspark.cluster.*) through ./collections
	python3 tools/setup.py link

setup: ## 2 min, 250 MB: the environments of both ansible-cores, where this machine has a Python for them
	python3 tools/setup.py 2.19 2.21 || [ $$? -eq 3 ]

lab-deps:
	python3 lab/lab install-deps

clean: ## 1 s: remove what was made here (the lab's image cache: lab/lab purge)
	rm -rf .venv .cache build reports collections
