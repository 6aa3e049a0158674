# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# The everyday commands. Each sets up what is missing first; see scripts/ for what they do.
PREFIX ?= /usr/local
BUILD := build/release

.PHONY: help setup build demo test cuda-all install format tidy clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo              set up, build, answer from a long text: full attention against Quest'
	@echo 'make test              set up, build, run every test, also under the sanitizers'
	@echo 'make cuda-all          compile the GPU code for every architecture (needs the CUDA toolkit, no GPU)'
	@echo 'make build             set up and build $(BUILD)/cli/quest'
	@echo 'make install PREFIX=…  install program, library and model (default: $(PREFIX))'
	@echo 'make format            lay out the sources with clang-format'
	@echo 'make tidy              check the sources with clang-tidy'
	@echo 'make clean             remove build/ (what set-up installed stays)'

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh release

demo: build
	@scripts/demo.sh

test: setup
	@scripts/test.sh

cuda-all:
	@scripts/compile_cuda.sh 80 86 89 90 100 120 ptx

# Only what is built is installed, so that `sudo make install` compiles nothing as root.
install:
	@test -f $(BUILD)/cmake_install.cmake || { echo 'run "make build" first' >&2; exit 1; }
	cmake --install $(BUILD) --prefix '$(PREFIX)'

format:
	@scripts/format.sh

tidy: setup
	@scripts/tidy.sh

clean:
	rm -rf build
