"""Ranks of a group as processes, each of them rank.c, watched from outside.

The driver is the simulated one, the compiler the real NVRTC, counted by the one in front of it.
What a rank does goes to a file, since a child that outlives it would keep a pipe open.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import harness

RANK = os.environ["JITCACHE_RANK"]
SIM = os.environ["JITCACHE_SIM_FOLDER"]
SECOND = 1_000_000_000

OK, PEER, DIFFER, LATE = "success", "another rank failed", "ranks differ", "timed out"
NOT_READY, INVALID, IO = "not ready", "invalid argument", "input or output failed"

# Takes NVRTC some tens of milliseconds. Of a range of N numbers there are N variants and the
# generic one.
TEMPLATE = """/*jitcache
kernel: NAME
arguments:
  - {name: x, type: i32*, do_not_specialize: true}
  - {name: n, type: i32, facets: [value], range: [1, LAST]}
*/
#include <jitcache.cuh>
extern "C" __global__ void NAME(int *x, int n)
{
    JC_FACT(n);
    int sums[16] = {};
    #pragma unroll
    for (int i = 0; i < ROUNDS; i++)
        sums[i % 16] += x[i] / (n + i) + x[sums[(i + 5) % 16] & 255];
    for (int i = 0; i < 16; i++)
        x[threadIdx.x * 16 + i] = sums[i];
}
"""


class Rank:
    """One process. `words` and `env` are what it was started with."""

    def __init__(self, number, words, env, path, before=()):
        self.number, self.path, self.words = number, path, words
        self.read, self.said = 0, []
        with open(path, "wb") as out, open(f"{path}.log", "wb") as log:
            self.process = subprocess.Popen([*before, RANK, *words], env=env, stdout=out,
                                            stderr=log, stdin=subprocess.PIPE)

    @property
    def lines(self):
        """What it has said so far, without what it is at. Only what is new is read."""
        with open(self.path, "rb") as file:
            file.seek(self.read)
            text = file.read()
        whole = text[:text.rfind(b"\n") + 1]
        self.read += len(whole)
        self.said += map(json.loads, whole.splitlines())
        return self.said

    @property
    def log(self):
        return Path(f"{self.path}.log").read_text(errors="replace")

    def all(self, event):
        return [line for line in self.lines if line["event"] == event]

    def last(self, event):
        return (self.all(event) or [None])[-1]

    @property
    def ended(self):
        return self.process.poll() is not None

    def go_on(self):
        """For one that holds."""
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except OSError:  # it is dead
            pass

    def signal(self, number):
        """The moment before it was sent."""
        at_ns = time.monotonic_ns()
        self.process.send_signal(number)
        return at_ns

    def kill(self):
        at_ns = self.signal(signal.SIGKILL)
        self.process.wait(harness.LIMIT_S)
        return at_ns

    def release(self):
        """Ends it, if it has not, and what it has left behind."""
        self.process.kill()
        self.process.wait(harness.LIMIT_S)
        self.process.stdin.close()


class Case(harness.Case):
    nvrtc = None  # found once

    def setUp(self):
        super().setUp()
        Case.nvrtc = Case.nvrtc or self.find_nvrtc()
        self.count, self.spans = self.folder / "count", self.folder / "spans"
        self.hold = self.folder / "hold"
        self.groups = self.folder / "groups"
        self.groups.mkdir(mode=0o700)
        self.env.update(JITCACHE_NVRTC=os.environ["JITCACHE_FORWARD_NVRTC"],
                        JITCACHE_REAL_NVRTC=Case.nvrtc, JITCACHE_NVRTC_COUNT=str(self.count),
                        JITCACHE_NVRTC_SPANS=str(self.spans),
                        JITCACHE_NVRTC_HOLD=str(self.hold), JITCACHE_JOBS="2",
                        LD_LIBRARY_PATH=SIM + ":" + os.environ.get("LD_LIBRARY_PATH", ""))
        self.ranks, self.started = [], 0
        self.addCleanup(self.release)

    def find_nvrtc(self):
        return re.search(r"NVRTC \S+ at (\S+),", self.run_command(
            "prewarm", "-v", harness.SILU, "--arch", "9.0", "--generic", "--check", "--dir",
            self.folder / "none", status=1).err)[1]

    def release(self):
        self.hold.unlink(missing_ok=True)
        for rank in self.ranks:
            rank.release()
        self.ranks = []

    # --- what ranks are given --------------------------------------------------------------------

    def templates(self, count, last, rounds=16, name="k"):
        """Words for so many kernels, each of `last` numbers and so of one variant more."""
        return [f"kernel={self.template(f'{name}{i}', last, rounds)}" for i in range(count)]

    def template(self, name, last, rounds=16, file=None):
        text = TEMPLATE.replace("NAME", name).replace("LAST", str(last))
        return self.write(f"{file or name}.cu", text.replace("ROUNDS", str(rounds)))

    def start(self, number, ranks, *words, before=(), name="job", folder=None, **variables):
        env = {**self.env, **variables}
        words = [f"rank={number}", f"ranks={ranks}", f"name={name}",
                 *([f"dir={folder or self.groups}"] if folder != "" else []), *map(str, words)]
        self.started += 1
        rank = Rank(number, words, env, self.folder / f"rank-{self.started}", before)
        self.ranks.append(rank)
        return rank

    def start_all(self, ranks, *words, **variables):
        return [self.start(i, ranks, *words, **variables) for i in range(ranks)]

    # --- how they fare ---------------------------------------------------------------------------

    def until(self, condition, what, limit_s=harness.LIMIT_S):
        end = time.monotonic() + limit_s
        while not (met := condition()):
            if time.monotonic() > end:
                self.fail(f"not in {limit_s} s: {what}\n{self.tell()}")
            time.sleep(0.01)
        return met

    def tell(self):
        """What all ranks have said last, for who reads a failure."""
        told = []
        for rank in self.ranks:
            lines = [{name: value for name, value in line.items() if name != "seen"}
                     for line in rank.lines if line["event"] != "progress"]
            told += [f"rank {rank.number}, status {rank.process.poll()}, {rank.words}:",
                     *map(str, lines), rank.log]
        return "\n".join(told)

    def until_said(self, rank, event, limit_s=harness.LIMIT_S):
        return self.until(lambda: rank.last(event), f"rank {rank.number} says {event}", limit_s)

    def until_compiling(self, count=1):
        """So many compiles have begun."""
        self.until(lambda: self.compiles() >= count, f"{count} compiles")

    def until_planned(self, rank):
        """It has compared its plan with the others': it counts, and another one was heard of."""
        self.until(lambda: any(line["planned"] for line in rank.all("progress")),
                   f"rank {rank.number} has planned")

    def compiles(self):
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0

    def verdicts(self, ranks, limit_s=harness.LIMIT_S):
        """Of their last warm-up, once all have ended or hold."""
        for rank in ranks:
            self.until(lambda rank=rank: rank.ended or rank.last("warm"),
                       f"rank {rank.number} answers", limit_s)
            self.assertTrue(rank.last("warm"), self.tell())
        return [rank.last("warm") for rank in ranks]

    def expect_ok(self, ranks, /, **fields):
        verdicts = self.verdicts(ranks)
        for rank, verdict in zip(ranks, verdicts):
            self.assertEqual(verdict["result"], OK, self.tell())
            for name, value in fields.items():
                self.assertEqual(verdict[name], value, f"{name} of rank {rank.number}")
        return verdicts

    def expect_failure(self, ranks, result, *patterns):
        """All fail alike; the text that they share, which has what the patterns say."""
        verdicts = self.verdicts(ranks)
        self.assertEqual([verdict["result"] for verdict in verdicts], [result] * len(ranks),
                         self.tell())
        for verdict in verdicts:
            for pattern in patterns:
                self.assertRegex(verdict["text"], pattern, self.tell())
        return verdicts

    def expect_refusal(self, rank, result, *patterns):
        """jc_group_create fails; when it did."""
        self.until(lambda: rank.ended or rank.last("refused") or rank.last("joined"),
                   f"rank {rank.number} is refused")
        refused = rank.last("refused")
        self.assertTrue(refused, self.tell())
        self.assertEqual((refused["call"], refused["result"]), ("jc_group_create", result),
                         self.tell())
        for pattern in patterns:
            self.assertRegex(refused["text"], pattern)
        return refused

    def expect_end(self, ranks, limit_s=harness.LIMIT_S):
        """All end in order."""
        for rank in ranks:
            rank.process.wait(limit_s)
        self.assertEqual([rank.process.returncode for rank in ranks], [0] * len(ranks),
                         self.tell())

    def expect_soon(self, verdicts, since_ns, limit_s):
        """None came later than that."""
        for verdict in verdicts:
            self.assertLess((verdict["at_ns"] - since_ns) / SECOND, limit_s, self.tell())

    def expect_nothing_left(self):
        """No process of this test's, and no file of a group."""
        self.until(lambda: not self.left_running(), "all processes have ended")
        self.assertEqual(os.listdir(self.groups), [])

    def left_running(self):
        """Processes that have this test's folder in their environment, and their commands."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if str(self.folder).encode() in path.read_bytes():
                    found[int(path.parent.name)] = (path.parent / "cmdline").read_bytes()
            except OSError:  # gone by now, or of somebody else
                pass
        return {pid: command for pid, command in found.items() if command}

    # --- what only root may ----------------------------------------------------------------------

    def require(self, *words):
        """Skips the test where such a command does not work."""
        if not shutil.which(words[0]) or subprocess.run(
                [*words, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=harness.LIMIT_S).returncode != 0:
            self.skipTest(f"not permitted here: {' '.join(words)}")
