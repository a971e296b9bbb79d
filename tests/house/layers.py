#!/usr/bin/env python3
"""Fails when an #include crosses the layers of docs/design.md: layers.py SOURCE_ROOT

First it looks at a small tree in which every rule is broken once, so that it cannot fall silent.
"""
import re
import sys
import tempfile
from pathlib import Path

# What a file of each folder may include, of ours: folders, or files where a folder is too much.
LAYERS = {
    "include": ["include"],
    "cache": ["cache", "include/jitcache/result.h", "include/jitcache/cache.h"],
    "templates": ["templates"],
    "runtime": ["runtime", "cache", "include"],
    "tools": ["tools", "include"],
    "examples": ["examples", "include"],
    "tests": ["tests", "runtime", "cache", "include"],
    "bench": ["bench", "runtime", "cache", "include"],
}

# Libraries that belong to some folders only. The tests may look at anything.
LIBRARIES = {
    r"lmdb\.h": ["cache", "bench"],
    r"yaml\.h": ["runtime"],
    r"jansson\.h": ["tools", "bench"],
    r"cmocka\.h": [],
    r"cuda.*|nvrtc.*": ["templates", "runtime", "bench", "examples"],
}

# Made by the build, so not found in the tree.
GENERATED = re.compile(r"\w+\.inc")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?\b[ \t]*(?:(["<])([^">]+)[">])?',
                     re.MULTILINE)


def find(root, file, name, quoted):
    """The file of ours that an include means, relative to root, or None for somebody else's."""
    folders = [root / "include", root]
    if file.suffix in (".cu", ".cuh"):
        folders = [root / "templates"]
    if quoted:
        folders.insert(0, file.parent)
    for folder in folders:
        target = (folder / name).resolve()
        if target.is_file() and target.is_relative_to(root):
            return target.relative_to(root)
    return None


def judge(root, file, opening, name):
    """What is wrong with one include, or None."""
    # Wherever a kernel lies, it sees what the shipped ones see.
    is_kernel = file.suffix in (".cu", ".cuh")
    layer = "templates" if is_kernel else file.relative_to(root).parts[0]
    if not name:
        return "names its file by a macro, which nobody can follow"
    target = find(root, file, name, opening == '"')
    if target:
        allowed = LAYERS[layer]
        if str(target) not in allowed and target.parts[0] not in allowed:
            return f"{layer}/ may include, of ours, only {', '.join(allowed)}"
        if opening == "<" and layer != "templates" and target.parts[0] != "include":
            return "angle brackets are for public and system headers"
        return None
    if opening == '"':
        return None if GENERATED.fullmatch(name) else "is not a file of ours"
    for library, layers in LIBRARIES.items():
        if re.fullmatch(library, name) and layer not in layers and layer != "tests":
            return f"belongs to {', '.join(layers) or 'the tests'} alone"
    return None


def check(root):
    """One complaint a line for the tree at root."""
    complaints = []
    for layer in LAYERS:
        for file in sorted((root / layer).rglob("*")):
            if file.suffix not in (".c", ".h", ".cc", ".cpp", ".cu", ".cuh"):
                continue
            text = file.read_text(encoding="utf-8")
            for match in INCLUDE.finditer(text):
                wrong = judge(root, file, match[1], match[2])
                if wrong:
                    line = text.count("\n", 0, match.start()) + 1
                    where = f"{file.relative_to(root)}:{line}"
                    complaints.append(f"{where}: {match[0].strip()}: {wrong}")
    return complaints


# A file, its include, and whether it is to be found fault with.
PROBES = [
    ("include/jitcache/bad.h", '#include "cache/inner.h"', True),
    ("include/jitcache/bad2.h", "#include <cuda.h>", True),
    ("include/jitcache/good.h", "#include <jitcache/result.h>\n#include <stddef.h>", False),
    ("cache/bad.c", '#include "runtime/inner.h"', True),
    ("cache/bad2.c", "#include <jitcache/context.h>", True),
    ("cache/bad3.c", '#include "../runtime/inner.h"', True),
    ("cache/bad4.c", "  #  include\t<cuda_runtime.h>", True),
    ("cache/good.c", '#include <jitcache/cache.h>\n#include <lmdb.h>\n#include "inner.h"', False),
    ("runtime/bad.c", '#include "tools/inner.h"', True),
    ("runtime/bad2.c", "#include <lmdb.h>", True),
    ("runtime/bad3.c", "#include <cache/inner.h>", True),
    ("runtime/bad4.c", "#include INNER", True),
    ("runtime/good.c", '#include "cache/inner.h"\n#include "device_header.inc"', False),
    ("tools/bad.c", '#include "runtime/inner.h"', True),
    ("tools/bad2.c", '#include "nowhere.h"', True),
    ("tools/good.c", "#include <jitcache/context.h>\n#include <jansson.h>", False),
    ("examples/bad.c", '#include "cache/inner.h"', True),
    ("templates/bad.cu", '#include "../runtime/inner.h"', True),
    ("templates/good.cu", '#include <inner.h>\n#include <cuda_fp8.h>', False),
    ("tests/bad.c", '#include "tools/inner.h"', True),
    ("tests/good.c", '#include <cmocka.h>\n#include "runtime/inner.h"', False),
]


def check_itself():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("result", "cache", "context"):
            write(root / f"include/jitcache/{name}.h", "")
        for layer in LAYERS:
            write(root / layer / "inner.h", "")
        for name, text, _ in PROBES:
            write(root / name, text + "\n")
        accused = {complaint.split(":")[0] for complaint in check(root)}
    expected = {name for name, _, bad in PROBES if bad}
    return [f"{name}: the check misjudges this probe" for name in sorted(accused ^ expected)]


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    found = check_itself() + check(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "every include keeps to its layer")
    sys.exit(bool(found))
