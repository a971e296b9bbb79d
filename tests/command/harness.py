"""Runs the command as a person or a script would, in a world of its own.

Each test class has a folder of its own for cache, home and files; nothing of the caller's settings
for the cache reaches the command. JITCACHE_COMMAND names the program under test, JITCACHE_PLAYER
the same with a prewarm that is played (play.c), JITCACHE_SCENIC the same with statistics that are
made up (scene.c), JITCACHE_FILL what fills a cache,
JITCACHE_BUILT_WORKER the worker.
"""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
from pathlib import Path

import scenes

COMMAND = os.environ["JITCACHE_COMMAND"]
PLAYER = os.environ["JITCACHE_PLAYER"]
SCENIC = os.environ["JITCACHE_SCENIC"]
FILL = os.environ["JITCACHE_FILL"]
WORKER = os.environ["JITCACHE_BUILT_WORKER"]
ROOT = Path(os.environ["JITCACHE_SOURCE_ROOT"])
TEMPLATES = ROOT / "templates"
ROPE = str(TEMPLATES / "fused_inv_rope_fp8_quant.cu")
SILU = str(TEMPLATES / "silu_mul_fp8_quant.cu")

# How to find a compiler is the caller's to say, nothing else is.
KEPT = ("JITCACHE_NVRTC", "JITCACHE_WORKER")
LIMIT_S = 120


class Case(unittest.TestCase):
    maxDiff = None
    command = COMMAND

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="jitcache-command-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.cache = self.folder / "cache"
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith("JITCACHE_") or name in KEPT}
        self.env.pop("NVRTC_APPEND_FLAGS", None)
        self.env.update(HOME=str(self.folder), XDG_CACHE_HOME=str(self.folder / "xdg"),
                        JITCACHE_DIR=str(self.cache),
                        JITCACHE_STATS=str(self.folder / "statistics"),
                        TERM="xterm", LC_ALL="C.UTF-8")

    def run_command(self, *words, status=0, remark="", **options):
        """Runs it, checks the status, and that standard error is silent exactly where it is 0.

        `remark` is what it says there all the same, such as a warning."""
        options.setdefault("env", self.env)
        done = subprocess.run([self.command, *map(str, words)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S,
                              **options)
        done.out = done.stdout.decode(errors="surrogateescape")
        done.err = done.stderr.decode(errors="surrogateescape")
        self.assertEqual(done.returncode, status, f"{words}\n{done.out}\n{done.err}")
        if remark:
            self.assertIn(remark, done.err, words)
        elif status == 0 and "-v" not in words:
            self.assertEqual(done.err, "", words)
        return done

    def complaint(self, *words, **options):
        """The one message of a command that is refused."""
        done = self.run_command(*words, status=2, **options)
        self.assertEqual(done.out, "", words)
        self.assertTrue(done.err.startswith("jitcache: "), done.err)
        first, *rest = done.err.splitlines()
        for line in rest:
            self.assertTrue(line.startswith("    ") or not line, f"a second message: {done.err}")
        return first

    def json(self, *words, **options):
        return json.loads(self.run_command(*words, "--json", **options).out)

    def fill(self, *words):
        subprocess.run([FILL, str(self.cache), *map(str, words)], check=True, timeout=LIMIT_S)

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def scenic(self, which):
        """The environment in which SCENIC shows that scene."""
        return {**self.env, "JITCACHE_SCENE": self.write("scene", scenes.spell(which))}

    def at_terminal(self, *words, answer=b"", stop_at=None, stop_with=signal.SIGINT, columns=None):
        """Runs it with all three streams at a terminal: its status and what it printed.

        Sends `answer` at once; sends the signal once something that matches `stop_at` was printed.
        """
        try:
            pid, terminal = pty.fork()
        except OSError as error:
            self.skipTest(f"no pseudo terminal here: {error}")
        if pid == 0:
            if columns:
                fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(self.command, [self.command, *map(str, words)], self.env)
        os.write(terminal, answer)
        printed, end = b"", time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                data = os.read(terminal, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            printed += data
            if stop_at and re.search(stop_at, printed):
                os.kill(pid, stop_with)
                stop_at = None
        else:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(terminal)
        return status, printed.decode()


def main():
    unittest.main(verbosity=1)
