# SPDX-License-Identifier: Apache-2.0
# Thin: each target is a command or two that you could type yourself. CMakePresets.json has the builds.
PRESET ?= release
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: help setup build test quickstart check-report crosscheck study bench sanitize fuzz cuda test-gpu sanitize-gpu lint format clean

help:
	@echo "make quickstart  install what is missing, build, train a small model in BF16 and in NVFP4, and compare them"
	@echo "make check-report  quickstart's report, and samples of what reports can hold, in Chromium (installs it)"
	@echo "make test        install what is missing, build, and run all tests"
	@echo "make build       build/tetrad (PRESET=portable for any processor)"
	@echo "make crosscheck  beside the real readers: PyTorch, transformers, llama.cpp, lm-evaluation-harness and others (installs them, several GB)"
	@echo "make study       longer runs that show that training works: docs/results.md"
	@echo "make bench       speed of quantizers, GEMM and training steps, each beside its ceiling"
	@echo "make sanitize    the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make fuzz        every parser under libFuzzer, 20 s each (SECONDS=N for longer)"
	@echo "make cuda        compile and link the CUDA backend into build/ (needs nvcc, no GPU; without nvcc a note)"
	@echo "make test-gpu    the tests, and those that need a CUDA device"
	@echo "make sanitize-gpu  the tests on a device under compute-sanitizer: memcheck, racecheck"
	@echo "make lint        clang-format and clang-tidy, as CI runs them"
	@echo "make format      rewrite the sources with clang-format"
	@echo "make clean       remove build folders"

setup:
	@scripts/setup

build: setup
	@cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET) --parallel $(JOBS)

test: build
	@ctest --preset $(PRESET) --parallel $(JOBS)

quickstart: build
	@scripts/quickstart

check-report:
	@test -f quickstart/comparison/report.html || { echo "first run: make quickstart (it makes the report)" >&2; exit 2; }
	@scripts/setup chromium:chromium python3:python3
	@scripts/check-report quickstart/comparison/report.html --samples

bench: build
	@build/tetrad bench quantize
	@build/tetrad bench gemm
	@build/tetrad bench step

crosscheck: build
	@scripts/crosscheck

study: build
	@scripts/study

sanitize:
	@$(MAKE) --no-print-directory test PRESET=sanitize

fuzz: setup
	@scripts/fuzz $(SECONDS)

cuda: setup
	@scripts/build-cuda $(JOBS)

test-gpu:
	@$(MAKE) --no-print-directory test PRESET=gpu

sanitize-gpu:
	@$(MAKE) --no-print-directory build PRESET=gpu
	@scripts/sanitize-gpu

lint: setup
	@scripts/lint

format:
	@git ls-files '*.h' '*.cpp' '*.cu' | xargs clang-format -i

clean:
	rm -rf build build-portable build-sanitize build-gpu build-lint build-fuzz
