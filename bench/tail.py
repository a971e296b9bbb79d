#!/usr/bin/env python3
"""The stalls of Triton for the calls of bench-tail: tail.py BENCH_TAIL

Prints one JSON object, as bench-tail does with --json. A small kernel with the same arguments is
called with the same counts of tokens and the same slices, 64 calls at a time, three times from an
empty cache of its own:

  specialized          as Triton does it by itself, with a tile that is chosen by the count
  do_not_specialize    of what the count decides, with that tile
  the same, one tile   whatever the count

Triton has started before, with another kernel. Exit 77, a skip, without a GPU, torch or Triton.
"""
import gc
import json
import os
import subprocess
import sys
import tempfile
import time

CALLS = 40000
STEP_CALLS = 64
LIMIT_S = 20  # of each of the three
STALL_NS, LONG_STALL_NS = 1000000, 10000000
HEADS, STRIDE, SCALE = 8, 4096, 1.0
ONE_TILE = 64

# Every program looks at all arguments and stores nothing.
KERNEL = """
@triton.jit{options}
def {name}(first, second, out, tokens, heads, stride, scale, padded, TILE: tl.constexpr):
    if tokens < 0:
        tl.store(out + stride, tl.load(first + heads) * scale + tl.load(second + padded))

"""
NOT_SPECIALIZED = '(do_not_specialize=["tokens", "padded"])'
SOURCE = "import triton\nimport triton.language as tl\n\n" + "".join(
    KERNEL.format(name=name, options=options)
    for name, options in [("start", ""), ("specialized", ""), ("stable", NOT_SPECIALIZED),
                          ("one_tile", NOT_SPECIALIZED)])


def read_calls(program):
    """(tokens, slice) of each call."""
    done = subprocess.run([program, "--calls", str(CALLS)], check=True, text=True,
                          stdout=subprocess.PIPE)
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def tile_of(tokens):
    """As the template in calls.c: 8 up to 8 tokens, twice as much for each 4 times as many."""
    tile, most = 8, 8
    while tokens > most and tile < 1024:
        tile, most = 2 * tile, 4 * most
    return tile


def arguments_of(tokens, which, memory, tile):
    """The grid and the arguments of a call."""
    first, second, out = memory
    first, second = first[which == 1], second[which == 2]
    return ((tokens + tile - 1) // tile, HEADS), (
        first, second, out, tokens, HEADS, STRIDE, SCALE, (tokens + 3) // 4 * 4, tile)


def measure(kernel, calls, memory, tile_for, drain):
    """Nanoseconds of each call, as far as the time goes."""
    taken = []
    begin = time.monotonic()
    for at in range(0, len(calls), STEP_CALLS):
        step = [arguments_of(tokens, which, memory, tile_for(tokens))
                for tokens, which in calls[at:at + STEP_CALLS]]
        for grid, arguments in step:
            start = time.perf_counter_ns()
            kernel[grid](*arguments, num_warps=1)
            taken.append(time.perf_counter_ns() - start)
        drain()
        if time.monotonic() - begin > LIMIT_S:
            break
    return taken


def part(name, taken, calls):
    ordered = sorted(taken)
    stalls = [value for value in taken if value >= STALL_NS]
    return {"part": "peer", "name": name, "spread": {
        "launches": len(taken), "stalls": len(stalls), "stalls_ns": sum(stalls),
        "long_stalls": sum(value >= LONG_STALL_NS for value in stalls),
        "quantiles": [ordered[int(at * (len(ordered) - 1))] for at in (0.5, 0.99, 0.999, 1)]},
        "at": [[*call, value] for call, value in zip(calls, taken) if value >= STALL_NS]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "cache")
        with open(os.path.join(folder, "tail_triton.py"), "w") as file:
            file.write(SOURCE)
        sys.path.insert(0, folder)
        try:
            import torch
            import triton
            import tail_triton  # its compiler reads the source from a file
        except ImportError as error:
            print(f"skipped: {error}", file=sys.stderr)
            return 77
        if not torch.cuda.is_available():
            print("skipped: torch finds no GPU", file=sys.stderr)
            return 77
        calls = read_calls(sys.argv[1])
        # Each as it is, and from its second element on.
        memory = [torch.zeros(1 << 16, device="cuda") for _ in range(3)]
        memory[0], memory[1] = ([whole, whole[1:]] for whole in memory[:2])
        grid, arguments = arguments_of(1, 0, memory, 8)
        tail_triton.start[grid](*arguments, num_warps=1)
        torch.cuda.synchronize()
        gc.disable()
        parts = []
        for name, kernel, tile_for in [
                ("specialized", tail_triton.specialized, tile_of),
                ("`do_not_specialize`", tail_triton.stable, tile_of),
                ("`do_not_specialize`, one tile", tail_triton.one_tile, lambda tokens: ONE_TILE)]:
            taken = measure(kernel, calls, memory, tile_for, torch.cuda.synchronize)
            parts.append(part(f"Triton {triton.__version__}, {name}", taken, calls))
        print(json.dumps({"benchmark": f"tail of Triton, {torch.cuda.get_device_name()}",
                          "figures": [], "parts": parts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
