#!/usr/bin/env bash
# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# Every check, all of them even if one fails: layout, unit tests under AddressSanitizer with UBSan
# and under ThreadSanitizer, then the whole suite in release. Ends with one summary line.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

summary=()
failed=0
check() {
  local name=$1 start=$SECONDS
  shift
  printf '\ntest: %s\n' "$name"
  if "$@" </dev/null; then
    summary+=("$name passed ($((SECONDS - start)) s)")
  else
    summary+=("$name FAILED")
    failed=1
  fi
}
run_preset() {
  scripts/build.sh "$1" && ctest --preset "$1" -j "$(nproc)" --no-tests=error
}

check format scripts/format.sh --check
check asan run_preset asan
check tsan run_preset tsan
check release run_preset release

printf '\ntest:'
printf ' %s.' "${summary[@]}"
printf '\n'
exit "$failed"
