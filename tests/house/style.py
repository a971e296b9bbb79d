#!/usr/bin/env python3
"""Fails on what a reader should not have to look for, in every file that git knows: style.py ROOT

Tabs, trailing blanks, long lines, CRLF, a missing last newline, open ends, paths of one machine,
hosts of package registries, and file names that say nothing.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

MAX_COLUMNS = 100
CODE = {".c", ".h", ".cu", ".cuh", ".py", ".build", ".map", ".txt"}
FORBIDDEN_STEMS = re.compile(r"(utils?|helpers?|common|misc|manager)")

# Inputs, expected bytes, and what programs made, which are what they are.
DATA = re.compile(r"tests/(golden|fuzz/corpus)/.*|docs/grafana/.*\.json|docs/images/.*\.svg")

# Spelled in pieces where this file would find itself.
OPEN_END = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
MACHINE = re.compile(r"(?<![\w.$}~*/-])/(work|root|farm|home/\w+|mnt/\w+)/")
FIXTURE = re.compile(r"(?<![\w.$}/-])/(var/)?tmp/\w")
REGISTRY = re.compile(r"\b(pypi\.(org|nvidia)|pythonhosted\.|(deb|security)\.debian\.|"
                      r"archive\.ubuntu\.|registry\.npmjs|crates\.io)")


def known_files(root):
    """What git tracks or would; without git, everything that is not built."""
    if shutil.which("git") and (root / ".git").exists():
        done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z",
                               "--cached", "--others", "--exclude-standard"],
                              check=True, capture_output=True, text=True)
        return [root / name for name in done.stdout.split("\0") if name]
    skipped = re.compile(r"(build.*|\.git|\.venv|__pycache__)(/.*)?")
    return [path for path in root.rglob("*")
            if not skipped.fullmatch(str(path.relative_to(root)))]


def is_code(name):
    return Path(name).suffix in CODE or name.startswith(("scripts/", ".ci/"))


def judge_line(name, line):
    """What is wrong with one line of file `name`."""
    # A table or an address cannot be broken in Markdown; the licence is quoted.
    prose = name.endswith(".md") and (line.startswith("|") or "://" in line)
    if len(line) > MAX_COLUMNS and not prose:
        yield f"{len(line)} columns; {MAX_COLUMNS} is the most"
    if "\t" in line:
        yield "a tab"
    if line != line.rstrip():
        yield "blanks, or a carriage return, at the end"
    if OPEN_END.search(line):
        yield "an open end; finish it or say why it stands"
    if MACHINE.search(line) or is_code(name) and FIXTURE.search(line):
        yield "a path that exists on one machine only"
    if REGISTRY.search(line):
        yield "the host of a package registry; its client knows it"


def judge(name, data):
    """Every complaint about one file of the tree."""
    if FORBIDDEN_STEMS.fullmatch(Path(name).stem):
        yield f"{name}: a name that says nothing about what is inside"
    if b"\0" in data or name == "LICENSE" or DATA.fullmatch(name):
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        yield f"{name}: neither UTF-8 nor binary"
        return
    if text and not text.endswith("\n"):
        yield f"{name}: no newline at the end"
    for number, line in enumerate(text.split("\n"), 1):
        for wrong in judge_line(name, line):
            yield f"{name}:{number}: {wrong}"


# A file and how many complaints it is to get.
PROBES = [
    ("good.c", "int x;\n// $TMPDIR/x, ~/x and https://example.org/" + "home/x/\n", 0),
    ("long.c", "x" * 101 + "\n", 1),
    ("just.c", "x" * 100 + "\n", 0),
    ("table.md", "|" + "x" * 120 + "|\n", 0),
    ("tab.c", "\tint x;\n", 1),
    ("blank.c", "int x; \n", 1),
    ("crlf.c", "int x;\r\n", 1),
    ("end.c", "int x;", 1),
    ("open.c", "// TO" "DO: later\n", 1),
    ("path.md", "see /wo" "rk/main/x\n", 1),
    ("fixture.c", 'open("/t' 'mp/x");\n', 1),
    ("host.py", "pypi" ".org\n", 1),
    ("cache/utils.c", "\n", 1),
    ("cache/help" "er.h", "\n", 1),
    ("tests/golden/crlf.cu", "\t\r\n", 0),
    ("binary", "\0\r\n\t", 0),
]


def check_itself():
    for name, text, expected in PROBES:
        got = list(judge(name, text.encode()))
        if len(got) != expected:
            yield f"{name}: this probe gets {got}, not {expected} complaints"


def main(root):
    complaints = list(check_itself())
    files = [path for path in known_files(root) if path.is_file() and not path.is_symlink()]
    for path in sorted(files):
        complaints += judge(str(path.relative_to(root)), path.read_bytes())
    print("\n".join(complaints) or f"{len(files)} files, nothing to say")
    return bool(complaints or not files)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
