#!/usr/bin/env python3
"""Compares what the headers promise, what the symbol map lists and what the libraries define:
symbols.py SOURCE_ROOT SHARED_LIBRARY STATIC_LIBRARY
"""
import re
import subprocess
import sys
from pathlib import Path

OURS = re.compile(r"jc_[a-z0-9_]+")
# What sanitizers and coverage add to every object; and what the header of NVTX defines, weak and
# hidden, once for all who include it.
TOOLS = re.compile(r"__(asan|ubsan|tsan|odr_asan|gcov|llvm|profc?|sanitizer)\w*[.\w]*|nvtx\w+_v3")


def promised(text):
    """The functions that a header declares with JC_API. What stands in comments is prose."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.MULTILINE)
    return set(re.findall(r"\bJC_API\b[^;(]*?\b(\w+)\s*\(", text))


def listed(text):
    """The names between `global:` and `local:` in a symbol map."""
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", text, flags=re.DOTALL)
    visible = "".join(re.findall(r"global:(.*?)local:", text, re.DOTALL))
    return set(re.findall(r"(\w+)\s*;", visible))


def defined(library, *options):
    """The global names that a library defines, without their versions."""
    out = subprocess.run(["nm", "--defined-only", "--format=posix", *options, library],
                         check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    # A is the version itself; the members of an archive have a line of their own.
    return {row[0].split("@")[0] for row in rows if len(row) >= 2 and row[1] not in "Aa"}


def difference(left, left_name, right, right_name):
    return ([f"{name}: {left_name}, but not {right_name}" for name in sorted(left - right)]
            + [f"{name}: {right_name}, but not {left_name}" for name in sorted(right - left)])


def foreign(names):
    return [f"{name}: visible to every user of the library, and not a jc_ name"
            for name in sorted(names) if not OURS.fullmatch(name) and not TOOLS.fullmatch(name)]


def check_itself():
    header = ("// JC_API int jc_prose(void);\n#define JC_API x(y)\n"
              "JC_API const char *jc_one(int (*each)(void));\nJC_API void\njc_two(void);\n")
    symbol_map = "V_1 {\nglobal:\n    jc_one; # jc_three;\n    jc_two;\nlocal:\n    *;\n};\n"
    assert promised(header) == {"jc_one", "jc_two"}, promised(header)
    assert listed(symbol_map) == {"jc_one", "jc_two"}, listed(symbol_map)
    assert len(difference({"a", "b"}, "left", {"b", "c", "d"}, "right")) == 3
    assert len(foreign({"jc_one", "helper", "__asan_init"})) == 1


def main(root, shared, static):
    check_itself()
    in_headers = set()
    for header in sorted((root / "include").rglob("*.h")):
        in_headers |= promised(header.read_text(encoding="utf-8"))
    in_map = listed((root / "jitcache.map").read_text(encoding="utf-8"))
    exported = {name for name in defined(shared, "--dynamic") if not TOOLS.fullmatch(name)}
    in_archive = defined(static, "--extern-only")

    wrong = difference(in_headers, "declared in a public header", in_map, "in jitcache.map")
    wrong += difference(in_map, "in jitcache.map", exported, f"exported by {Path(shared).name}")
    wrong += [f"{name}: in jitcache.map, but not in {Path(static).name}"
              for name in sorted(in_map - in_archive)]
    wrong += foreign(exported) + foreign(in_archive)
    print("\n".join(wrong) or f"{len(exported)} functions, promised, listed and there")
    return bool(wrong or not exported)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
