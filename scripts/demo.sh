#!/usr/bin/env bash
# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# The main job: a question about a long text, answered twice by the packaged model, with full
# attention and with Quest, and the two compared in a table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quest=build/release/cli/quest
document=examples/archive.txt
question='What is the pass key? The pass key is'
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

ask() {
  "$quest" ask "$document" "$question" -n 32 --json "$@" </dev/null
}

printf 'demo: %s, "%s …"\n' "$document" "$question"
printf 'demo: with full attention\n'
ask --dense >"$results/full.json"
printf 'demo: with Quest\n'
ask >"$results/quest.json"
python3 scripts/demo_table.py "$results/full.json" "$results/quest.json"
