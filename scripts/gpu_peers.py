#!/usr/bin/env python3
# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
"""Measures what other programs take for full attention of one decode step, one layer, on this GPU:
PyTorch's scaled_dot_product_attention and FlashInfer's paged decode, where they are installed. The
shapes are those of quest-gpu-check, which shows the result beside its own with --peers FILE.

Needs nothing but what it measures. An arm that is not there is skipped with a message and named in
the result.
"""
import argparse
import importlib
import json
import os
import sys
import tempfile
import time

FORMAT = 1  # quest_peers
HEAD_DIM = 128
PAGE_SIZE = 16
HEADS = [(32, 32), (32, 8), (64, 8)]  # query heads, KV heads
CONTEXTS = [32768, 2048, 8192, 131072, 262144]
BATCHES = [1, 8, 64]
BYTES = 2  # of an f16 number
WARM_UP = 3
REPEATS = 20


def say(text):
    print(f"gpu_peers: {text}", file=sys.stderr, flush=True)


def seconds_of(torch, step):
    """Seconds of one step, the mean over replays of a CUDA graph, or over launches where the step
    cannot be captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    except RuntimeError as error:
        say(f"not captured, launched one by one: {error}")
        run = step
    for _ in range(WARM_UP):
        run()
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(REPEATS):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / REPEATS


def random(torch, *shape):
    return torch.randn(*shape, dtype=torch.float16, device="cuda")


def measure_sdpa(torch, _, context, batch, q_heads, kv_heads):
    q = random(torch, batch, q_heads, 1, HEAD_DIM)
    k = random(torch, batch, kv_heads, context, HEAD_DIM)
    v = random(torch, batch, kv_heads, context, HEAD_DIM)
    attention = torch.nn.functional.scaled_dot_product_attention
    shared = {"enable_gqa": True} if q_heads != kv_heads else {}
    return seconds_of(torch, lambda: attention(q, k, v, **shared))


def measure_flashinfer(torch, flashinfer, context, batch, q_heads, kv_heads):
    pages = -(-context // PAGE_SIZE)
    q = random(torch, batch, q_heads, HEAD_DIM)
    cache = random(torch, batch * pages, 2, kv_heads, PAGE_SIZE, HEAD_DIM)
    integers = {"dtype": torch.int32, "device": "cuda"}
    indptr = torch.arange(0, (batch + 1) * pages, pages, **integers)
    indices = torch.arange(batch * pages, **integers)
    last_page = torch.full((batch,), (context - 1) % PAGE_SIZE + 1, **integers)
    best = None
    # Which of its kernels is faster depends on the group.
    for tensor_cores in [False, True] if q_heads != kv_heads else [False]:
        workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "HND", use_tensor_cores=tensor_cores)
        wrapper.plan(indptr, indices, last_page, q_heads, kv_heads, HEAD_DIM, PAGE_SIZE)
        seconds = seconds_of(torch, lambda: wrapper.run(q, cache))
        best = seconds if best is None else min(best, seconds)
    return best


ARMS = [("torch sdpa", "torch", measure_sdpa), ("flashinfer", "flashinfer", measure_flashinfer)]


def find_arms(skipped):
    """(engine, module, measure) of every arm that can run, and torch, which all of them need."""
    try:
        torch = importlib.import_module("torch")
        if not torch.cuda.is_available():
            reason = "torch finds no CUDA device"
            torch = None
    except ImportError as error:
        torch = None
        reason = f"torch cannot be imported: {error}"
    arms = []
    for engine, package, measure in ARMS:
        if torch is not None:
            try:
                arms.append((engine, importlib.import_module(package), measure))
                continue
            except ImportError as error:
                reason = f"{package} cannot be imported: {error}"
        say(f"{engine} skipped: {reason}")
        skipped.append({"engine": engine, "reason": reason})
    return torch, arms


def shapes(quick):
    for context in [2048] if quick else CONTEXTS:
        for batch in [1, 2] if quick else BATCHES:
            for q_heads, kv_heads in HEADS:
                yield {"context": context, "batch": batch, "q_heads": q_heads, "kv_heads": kv_heads}


def measure_rows(torch, arms, options, skipped):
    rows = []
    start = time.monotonic()
    for shape in shapes(options.quick):
        kv_bytes = 2 * BYTES * HEAD_DIM * shape["context"] * shape["batch"] * shape["kv_heads"]
        for engine, module, measure in arms:
            reason = None
            if kv_bytes > torch.cuda.mem_get_info()[0] / 2:
                reason = "memory"
            elif time.monotonic() - start > options.seconds:
                reason = "time"
            else:
                try:
                    seconds = measure(torch, module, **shape)
                except Exception as error:  # whatever these packages throw for what they do not serve
                    reason = f"{type(error).__name__}: {error}"
            torch.cuda.empty_cache()
            if reason is not None:
                say(f"{engine} {shape} skipped: {reason}")
                skipped.append({"engine": engine, **shape, "reason": reason})
                continue
            rows.append({"engine": engine, **shape, "head_dim": HEAD_DIM, "kv": "f16",
                         "seconds": seconds})
            say(f"{engine} {shape}: {seconds * 1e6:.1f} us")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="write the JSON to this file, not standard output")
    parser.add_argument("--quick", action="store_true", help="a few small shapes")
    parser.add_argument("--seconds", type=float, default=150, help="time for all (default: 150)")
    options = parser.parse_args()
    try:  # before minutes of measuring; the file appears complete or not at all
        file = sys.stdout if options.output is None else tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=os.path.dirname(options.output) or ".", delete=False)
    except OSError as error:
        say(f"cannot write '{options.output}': {error.strerror}; choose another path for -o")
        return 1
    try:
        write_result(options, file)
    except BaseException:
        if options.output is not None:
            os.unlink(file.name)
        raise
    return 0


def write_result(options, file):
    skipped = []
    torch, arms = find_arms(skipped)
    rows = measure_rows(torch, arms, options, skipped) if arms else []
    result = {
        "quest_peers": FORMAT,
        "device": torch.cuda.get_device_name() if torch else None,
        "versions": {module.__name__: str(getattr(module, "__version__", "unknown"))
                     for _, module, _ in arms},
        "rows": rows,
        "skipped": skipped,
    }
    file.write(json.dumps(result, indent=2) + "\n")
    if options.output is not None:
        file.close()
        os.chmod(file.name, 0o644)
        os.replace(file.name, options.output)


if __name__ == "__main__":
    sys.exit(main())
