# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
"""Prints two results of `quest ask --json` side by side: full attention against Quest."""

import json
import sys

STAGES = ("append", "summarise", "score", "select", "attend", "other")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def answer(result):
    text = " ".join(result["text"].split())
    return text if len(text) <= 40 else text[:39] + "…"


def number(value, form):
    return "-" if value is None else format(value, form)


def rows(result):
    """(label, cell) pairs of one result; both results give the same labels."""
    yield "answer", answer(result)
    yield "prompt tokens", number(result["prompt_tokens"], ",d")
    yield "generated tokens", number(result["generated_tokens"], ",d")
    yield "prefill tokens/s", number(result["prefill_tokens_per_second"], ",.0f")
    yield "decode tokens/s", number(result["decode_tokens_per_second"], ",.1f")
    yield "KV bytes read a token", number(result["kv_bytes_read_per_token"], ",.0f")
    yield "KV bytes of full attention", number(result["kv_bytes_dense_per_token"], ",.0f")
    for stage in STAGES:
        yield f"seconds: {stage}", number(result["seconds"][stage], ".4f")


def main():
    full, quest = (load(path) for path in sys.argv[1:])
    table = [("", "full attention", "Quest")]
    table += [(label, a, b) for (label, a), (_, b) in zip(rows(full), rows(quest), strict=True)]
    widths = [max(len(row[i]) for row in table) for i in range(3)]
    table.insert(1, tuple("-" * width for width in widths))
    print()
    for label, a, b in table:
        print(f"  {label:<{widths[0]}}  {a:>{widths[1]}}  {b:>{widths[2]}}")
    policy = quest["policy"]
    print(f"\n  budget {policy['budget']} tokens, page size {policy['page_size']}, KV {policy['kv']}, "
          f"{quest['threads']} threads, {quest['cpu']}")
    print(f"  {quest['model']}, quest {quest['version']} ({quest['commit']}, {quest['compiler']})")


if __name__ == "__main__":
    main()
