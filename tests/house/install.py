#!/usr/bin/env python3
"""Installs into a prefix of its own, then uses the copy as a stranger would:
install.py SOURCE_ROOT MESON CUDA_HEADERS LIBCUDA CC...

The example is built against the installed pkg-config file, with the shared and with the static
library, and compiles a template that was installed; then again after the whole prefix has moved.
Where there is a cuda.h, in the folder CUDA_HEADERS, the examples that launch are built too, and run
with the simulated driver, LIBCUDA.
"""
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Of the caller's settings only the toolchain is to reach the installed copy.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("JITCACHE_", "MESON", "NINJA")) or name == "JITCACHE_NVRTC"}


def run(*command, **environment):
    """The standard output of a command that has to succeed."""
    command = [str(word) for word in command]
    done = subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def install(root, meson, cc, build, prefix):
    # A debug build is the fastest to make, and is installed like any other.
    run(meson, "setup", build, root, f"--prefix={prefix}", "--buildtype=debug",
        "-Dtests=disabled", "-Dwerror=true", CC=shlex.join(cc))
    run(meson, "compile", "-C", build)
    run(meson, "install", "-C", build, "--no-rebuild")


def pkg_config(prefix, *options):
    [file] = prefix.rglob("jitcache.pc")
    return run("pkg-config", *options, "jitcache",
               PKG_CONFIG_PATH=f"{file.parent}:{os.environ.get('PKG_CONFIG_PATH', '')}").split()


def check_files(root, prefix):
    """Everything that users name must be there, and nothing of the inside."""
    libdir = Path(pkg_config(prefix, "--variable=libdir")[0])
    templates = Path(pkg_config(prefix, "--variable=templatedir")[0])
    wanted = [prefix / "bin/jitcache", libdir / "libjitcache.so", libdir / "libjitcache.a",
              libdir / "jitcache/jitcache-worker"]
    wanted += [prefix / path.relative_to(root) for path in (root / "include").rglob("*.h")]
    wanted += [templates / path.name for path in (root / "templates").glob("*.cu*")]
    wanted += [prefix / "share/man/man1" / path.name for path in (root / "man").glob("*.1")]
    wanted += [prefix / "share" / name for name in (
        "bash-completion/completions/jitcache", "zsh/site-functions/_jitcache",
        "fish/vendor_completions.d/jitcache.fish")]
    missing = [str(path) for path in wanted if not path.exists()]
    if missing:
        sys.exit("not installed: " + ", ".join(missing))
    headers = {path.relative_to(prefix) for path in (prefix / "include").rglob("*.h")}
    extra = headers - {path.relative_to(root) for path in (root / "include").rglob("*.h")}
    if extra:
        sys.exit("installed, but not public: " + ", ".join(map(str, extra)))
    return libdir, templates


def build_example(root, cc, prefix, program, static, name="prewarm.c", more=()):
    flags = pkg_config(prefix, "--cflags", "--libs", *(["--static"] if static else []))
    if static:
        flags = ["-l:libjitcache.a" if flag == "-ljitcache" else flag for flag in flags]
    run(*cc, "-std=c17", "-Wall", "-Wextra", "-Werror", "-o", program, root / "examples" / name,
        *flags, *more)


def try_launching(root, cc, prefix, folder, cuda_headers, libcuda):
    """Builds the examples that launch, and lets them believe that there is a GPU."""
    [library] = prefix.rglob("libjitcache.so")
    for name in ("launch.c", "graph.c", "serve.c", "metrics.c"):
        program = folder / Path(name).stem
        build_example(root, cc, prefix, program, False, name, ["-isystem", cuda_headers, libcuda])
        run(program, JITCACHE_DIR=str(folder / "cache-launch"),
            LD_LIBRARY_PATH=f"{library.parent}:{Path(libcuda).parent}")


def needs_library(program):
    return "libjitcache.so" in run("readelf", "--dynamic", program)


def try_it(program, prefix, template, cache):
    """Compiles a template with the example and lists it with the command, which stand in prefix."""
    # The command finds its library by itself; a stranger's program is told.
    [library] = prefix.rglob("libjitcache.so")
    run(program, template, JITCACHE_DIR=str(cache), LD_LIBRARY_PATH=str(library.parent))
    listed = run(prefix / "bin/jitcache", "ls", JITCACHE_DIR=str(cache))
    if template.stem not in listed:
        sys.exit(f"{program.name} left nothing of {template.stem} in the cache:\n{listed}")


def main(root, meson, cuda_headers, libcuda, cc):
    with tempfile.TemporaryDirectory(prefix="jitcache-install-") as folder:
        folder = Path(folder).resolve()
        prefix = folder / "prefix"
        install(root, meson, cc, folder / "build", prefix)
        _, templates = check_files(root, prefix)
        template = templates / "silu_mul_fp8_quant.cu"
        run(prefix / "bin/jitcache", "plan", template)

        for static in (False, True):
            program = folder / ("static" if static else "shared")
            build_example(root, cc, prefix, program, static)
            if needs_library(program) == static:
                sys.exit(f"{program.name}: linked with the wrong libjitcache")
            try_it(program, prefix, template, folder / f"cache-{program.name}")
        if cuda_headers:
            try_launching(root, cc, prefix, folder, cuda_headers, libcuda)

        # A shared build finds its worker beside the library, wherever that is by now.
        moved = folder / "moved"
        shutil.move(prefix, moved)
        shutil.rmtree(folder / "build")
        template = moved / template.relative_to(prefix)
        try_it(folder / "shared", moved, template, folder / "cache-moved")
    print("installed, used and moved")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:5], sys.argv[5:])
