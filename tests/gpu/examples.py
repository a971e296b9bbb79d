#!/usr/bin/env python3
"""Runs an example with a cache of its own and looks at what it prints: examples.py EXPECTED COMMAND

EXPECTED is a regular expression for all of its output. Exit 77, a skip, where there is no GPU.
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


def main(expected, *command):
    if not have_gpu():
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
    sys.exit(main(*sys.argv[1:]))
