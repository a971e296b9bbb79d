#!/usr/bin/env python3
"""Compiles each public header alone and twice over, as C17 and as C++: headers.py SOURCE_ROOT CC...

CC is the compiler of this build; others are tried where they are. Status 77 without a C++ one.
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

C_FLAGS = ["-x", "c", "-std=c17", "-Wstrict-prototypes"]
CPP_FLAGS = ["-x", "c++", "-std=c++11"]
FLAGS = ["-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-Wundef", "-fsyntax-only"]


def compiles(compiler, include, text, folder):
    """The compiler's complaints about a file of this text; empty if there are none."""
    source = Path(folder) / "alone"
    source.write_text(text)
    done = subprocess.run([*compiler, *FLAGS, "-I", str(include), str(source)],
                          capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def main(root, cc):
    include = root / "include"
    headers = sorted(path.relative_to(include) for path in include.rglob("*.h"))
    compilers = [[*cc, *C_FLAGS]]
    compilers += [[name, *C_FLAGS] for name in ("gcc", "clang") if shutil.which(name)]
    cpp = [[name, *CPP_FLAGS] for name in ("g++", "clang++") if shutil.which(name)]
    failed = not headers
    with tempfile.TemporaryDirectory() as folder:
        for compiler in compilers + cpp:
            if not compiles(compiler, include, "struct s { unknown member; };\n", folder):
                print(f"{compiler[0]} accepts anything; the check says nothing")
                failed = True
            for header in headers:
                complaints = compiles(compiler, include, f"#include <{header}>\n" * 2, folder)
                if complaints:
                    print(f"{' '.join(compiler)}: {header} does not compile alone:\n{complaints}")
                    failed = True
    print(f"{len(headers)} headers, {len(compilers)} C and {len(cpp)} C++ compilers")
    if failed:
        return 1
    return 0 if cpp else 77


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
