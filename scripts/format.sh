#!/usr/bin/env bash
# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# scripts/format.sh [--check]: lays out the sources with clang-format, or only checks them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/sources.sh

mapfile -t sources < <(quest_sources -name '*.cc' -o -name '*.h')
if [[ ${1:-} == --check ]]; then
  clang-format --dry-run -Werror "${sources[@]}"
  printf 'format: %d files are laid out as .clang-format says\n' "${#sources[@]}"
else
  clang-format -i "${sources[@]}"
  printf 'format: %d files\n' "${#sources[@]}"
fi
