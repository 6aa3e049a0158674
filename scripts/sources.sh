# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# Sourced by format.sh and tidy.sh: quest_sources PATTERN… lists the project's own C++ files.
quest_sources() {
  local folder patterns=()
  for folder in include src cli tests bench examples; do
    if [[ -d $folder ]]; then patterns+=("$folder"); fi
  done
  find "${patterns[@]}" -type f \( "$@" \) | sort
}
