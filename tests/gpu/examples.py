#!/usr/bin/env python3
"""Runs an example with a cache of its own and looks at what it prints:
examples.py [--gpu] EXPECTED COMMAND

EXPECTED is a regular expression for all of its output. With --gpu, status 77, a skip, where there
is none.
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile


def have_gpu():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def main(needs_gpu, expected, *command):
    if needs_gpu and not have_gpu():
        print("skipped: there is no GPU here")
        return 77
    with tempfile.TemporaryDirectory(prefix="jitcache-example-") as folder:
        done = subprocess.run(command, env={**os.environ, "JITCACHE_DIR": folder}, timeout=100,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="")
    if done.returncode == 0 and not re.fullmatch(expected, done.stdout):
        print(f"expected: {expected}")
        return 1
    return done.returncode


if __name__ == "__main__":
    on_gpu = sys.argv[1] == "--gpu"
    sys.exit(main(on_gpu, *sys.argv[2 if on_gpu else 1:]))
