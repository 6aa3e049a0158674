#!/usr/bin/env bash
# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# scripts/build.sh PRESET [cmake --build options]: configures and builds one preset.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=$1
shift
printf 'build: %s\n' "$preset"
# The dependency folder is named each time: it may have moved since the last configuration.
deps=$(realpath -m "${QUEST_DEPS:-.deps}")
cmake --preset "$preset" --log-level=WARNING -DQUEST_DEPS="$deps" >/dev/null </dev/null
cmake --build --preset "$preset" -j "$(nproc)" "$@" </dev/null
