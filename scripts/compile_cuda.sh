#!/usr/bin/env bash
# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# scripts/compile_cuda.sh ARCHITECTURE…: compiles the GPU code, and nothing else, for these
# architectures (80, 90, …; "ptx" adds code for GPUs newer than the last). Warnings are errors.
# Exit status 77 without a CUDA toolkit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
    if [[ -n $candidate && -x $candidate ]]; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

if ! nvcc=$(find_nvcc); then
  printf 'cuda: SKIPPED, no nvcc in CUDACXX, PATH, CUDA_HOME or /usr/local/cuda: the GPU code was not compiled\n'
  exit 77
fi
targets=()
last=
for architecture in "$@"; do
  if [[ $architecture == ptx ]]; then
    targets+=(-gencode "arch=compute_$last,code=compute_$last")
  else
    targets+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
    last=$architecture
  fi
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
start=$SECONDS
"$nvcc" -std=c++20 --expt-relaxed-constexpr -O3 -Werror all-warnings -Iinclude -Isrc --threads "$(nproc)" \
  "${targets[@]}" -c src/attention/cuda/cuda_device.cu -o "$out/cuda_device.o"
printf 'cuda: %s compiled for %s (%d s)\n' "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p')" \
  "$*" "$((SECONDS - start))"
