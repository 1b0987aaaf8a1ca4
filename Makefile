# SPDX-License-Identifier: Apache-2.0
# Thin: each target is a command or two that you could type yourself. CMakePresets.json has the builds.
PRESET ?= release
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
PREFIX ?= /usr/local

configure = cmake --preset $(PRESET) $(CMAKE_FLAGS)
compile = cmake --build --preset $(PRESET) --parallel $(JOBS)
again = $(MAKE) --no-print-directory

.PHONY: help setup build build-install build-tests test quickstart check-report check-hosts crosscheck study torture bench sanitize sanitize-threads fuzz cuda test-gpu \
  sanitize-gpu install wheel deb check-install lint format clean

help:
	@echo "These install what is missing, and name it:"
	@echo "make quickstart  build, train a small model in BF16 and in NVFP4, and compare them"
	@echo "make test        build, and run all tests"
	@echo "make setup       nothing else"
	@echo "make sanitize    the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make sanitize-threads  the tests under ThreadSanitizer"
	@echo "make fuzz        every parser under libFuzzer, 20 s each (SECONDS=N for longer, SECONDS=0 RUNS=N for so many inputs)"
	@echo "make cuda        compile and link the CUDA backend into build/ (needs nvcc, no GPU; without nvcc a note)"
	@echo "make test-gpu    the tests, and those that need a CUDA device"
	@echo "make sanitize-gpu  the tests on a device under compute-sanitizer: memcheck, racecheck"
	@echo "make check-report  quickstart's report, and samples of what reports can hold, in Chromium"
	@echo "make crosscheck  beside the real readers: PyTorch, transformers, llama.cpp, lm-evaluation-harness and others (several GB)"
	@echo "make lint        formatters and static analysis, as CI runs them: C++, CUDA, Python, shell, JavaScript"
	@echo
	@echo "These install nothing, and say what is missing:"
	@echo "make build       build/tetrad (PRESET=native for this processor alone)"
	@echo "make install     the program, the library and its headers, into PREFIX (/usr/local)"
	@echo "make deb         the same as a package of Debian or Ubuntu, in build/"
	@echo "make wheel       the Python package as a wheel, in build-wheel/: docs/python.md"
	@echo "make check-install  that projects can build with what is installed: examples/quantize"
	@echo "make bench       speed of quantizers, GEMM and training steps, each beside its ceiling"
	@echo "make torture     a thousand kills and more over small runs, each then compared to the bit (KILLS=N FAULTS=N)"
	@echo "make check-hosts  ranks on two hosts, which are network namespaces of this one (as root)"
	@echo "make study       longer runs that show that training works: docs/results.md"
	@echo "make format      rewrite the sources as make lint wants them, where a tool can"
	@echo "make clean       remove build folders"

setup:
	@scripts/setup

build:
	@scripts/setup --check
	@$(configure)
	@$(compile) --target tetrad

# The program and both libraries.
build-install: build
	@$(compile) --target tetrad_static tetrad_shared

install: build-install
	@cmake --install build --prefix $(PREFIX)

# What the wheel is built with and checked by is in an environment of its own.
wheel: setup
	@scripts/build-wheel

deb: build-install
	@scripts/setup --check dpkg-shlibdeps:dpkg-dev file:file
	@rm -f build/tetrad_*.deb
	@cpack --config build/CPackConfig.cmake -B build
	@rm -rf build/_CPack_Packages
	@ls build/tetrad_*.deb

check-install: build-install
	@scripts/check-install

build-tests:
	@scripts/setup --tests
	@$(configure)
	@$(compile)

# One more at a time than there are cores: some mostly wait for others.
test: build-tests
	@ctest --preset $(PRESET) --parallel $(shell expr $(JOBS) + 1)

quickstart: setup
	@$(again) build
	@scripts/quickstart

check-report:
	@test -f quickstart/comparison/report.html || { echo "first run: make quickstart (it makes the report)" >&2; exit 2; }
	@scripts/setup chromium:chromium python3:python3
	@scripts/check-report quickstart/comparison/report.html --samples

bench: build
	@build/tetrad bench quantize
	@build/tetrad bench gemm
	@build/tetrad bench step

crosscheck: setup
	@$(again) build
	@scripts/crosscheck

torture: build
	@scripts/torture --kills $(or $(KILLS),1000) --faults $(or $(FAULTS),0)

check-hosts: build
	@scripts/check-hosts

study: build
	@scripts/study

sanitize:
	@$(again) test PRESET=sanitize

sanitize-threads:
	@$(again) test PRESET=sanitize-threads

fuzz:
	@scripts/setup --tests
	@scripts/fuzz $(or $(SECONDS),20) $(RUNS)

cuda:
	@scripts/setup --tests
	@scripts/build-cuda $(JOBS)

test-gpu:
	@$(again) test PRESET=gpu

sanitize-gpu:
	@$(again) build-tests PRESET=gpu
	@scripts/sanitize-gpu

lint:
	@scripts/setup --tests
	@scripts/lint

format:
	@scripts/lint --fix

clean:
	rm -rf build build-native build-arm64 build-sanitize build-sanitize-threads build-gpu build-lint build-fuzz build-wheel
