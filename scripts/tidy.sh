#!/usr/bin/env bash
# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# Checks the sources with clang-tidy as .clang-tidy says; a warning is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/sources.sh

scripts/build.sh release
# Only what the build compiles; the consumer of tests/consumer is a project of its own.
mapfile -t sources < <(quest_sources -name '*.cc' | grep -Fxf <(
  python3 -c 'import json, os
for entry in json.load(open("build/release/compile_commands.json")):
    print(os.path.relpath(entry["file"]))'))
printf 'tidy: %d files\n' "${#sources[@]}"
printf '%s\0' "${sources[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build/release 2>/dev/null
printf 'tidy: clean\n'
