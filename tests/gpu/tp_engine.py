#!/usr/bin/env python3
"""Runs the example tp_engine and looks at what its set-ups did:
tp_engine.py PROGRAM TEMPLATES [--gpu]

With --gpu, status 77, a skip, where there is none.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import examples

PROGRAM, TEMPLATES = sys.argv[1:3]
LIMIT_S = 240
SETUPS = ["specialized", "annotated", "prewarmed", "group"]
PLANNED = 4  # three tiles of one kernel, one of the other; the generic variants come on top


def command(*options):
    return [PROGRAM, *map(str, options), TEMPLATES]


def sum_of(part, name):
    return sum(rank[name] for rank in part["ranks"])


class TpEngine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="jitcache-tp-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_engine(self, *options, status=0):
        done = subprocess.run(command(*options), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def run_parts(self, *options):
        """What is in the JSON, by set-up."""
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        result = json.loads(self.run_engine("--ranks", 2, "--dir", folder, "--json", *options))
        self.assertEqual(result["benchmark"], "tp")
        return {part["part"]: part for part in result["parts"]}

    def test_set_ups_pay_for_what_they_lack(self):
        parts = self.run_parts("--steps", 120, "--pause", 1)
        self.assertEqual(list(parts), SETUPS)
        for part in parts.values():
            self.assertEqual([len(part["ranks"]), len(part["step_ns"])], [2, 120])
            self.assertGreater(min(part["step_ns"]), 0)
            self.assertGreater(min(rank["ready_ns"] - rank["cuda_ns"] for rank in part["ranks"]), 0)
        specialized, annotated, prewarmed, group = parts.values()
        # A specialized token count has four kinds, and each kind of layout has all of them.
        self.assertGreater(sum_of(specialized, "compiles"), sum_of(annotated, "compiles"))
        # The cache has what a plan knows of, and the calls want all of that.
        self.assertEqual(sum_of(annotated, "first_compiles"), 2)
        self.assertEqual(sum_of(annotated, "compiles"), sum_of(prewarmed, "compiles") + PLANNED)
        self.assertEqual(sum_of(prewarmed, "first_compiles"), 0)
        self.assertEqual(sum_of(prewarmed, "loads"), sum_of(annotated, "loads"))
        for part in (specialized, annotated, prewarmed):
            self.assertGreater(sum_of(part, "stalls"), 0)
            self.assertEqual(sum_of(part, "common_loads"), 0)
        self.assertEqual(sum_of(group, "first_compiles"), 0)
        self.assertEqual(sum_of(group, "stalls"), 0)
        self.assertEqual(sum_of(group, "loads"), sum_of(group, "common_loads"))

    def test_a_group_compiles_and_loads_nothing_where_all_was_foreseen(self):
        parts = self.run_parts("--steps", 100, "--pause", 0, "--odd", 0, "--setup", "group")
        for name in ("stalls", "compiles", "loads", "common_steps"):
            self.assertEqual(sum_of(parts["group"], name), 0)

    def test_what_was_not_foreseen_serves_in_all_ranks_from_the_same_step_on(self):
        # Compiles in the background take what time they take on a machine that others use.
        for steps in (400, 1600, 6400):
            group = self.run_parts("--steps", steps, "--setup", "group")["group"]
            self.assertEqual(sum_of(group, "stalls"), 0)
            first, second = (rank["switches"] for rank in group["ranks"])
            if first:
                break
        self.assertEqual(first, second)
        self.assertGreater(len(first), 0)
        self.assertGreater(sum_of(group, "common_loads"), 0)
        self.assertEqual(sum_of(group, "loads"), sum_of(group, "common_loads"))

    def test_the_table_has_a_row_for_each_set_up(self):
        shown = self.run_engine("--ranks", 3, "--steps", 20, "--runs", 2, "--pause", 0, "--setup",
                                "annotated", "--dir", self.folder)
        self.assertIn("3 ranks on ", shown)
        self.assertRegex(shown, r"\nannotated +2 +0 ms +\d+ ms( +[\d.]+ us){3}( +[\d.]+){3} +0.0\n")
        self.assertNotIn("specialized", shown)
        self.assertEqual({path.name for path in self.folder.iterdir()},
                         {"annotated-0", "annotated-1"})

    def test_a_rank_that_is_killed_ends_the_run_and_is_named(self):
        with subprocess.Popen(command("--setup", "annotated", "--steps", 1000000, "--dir",
                                      self.folder), stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as engine:
            ranks = self.await_ranks(engine.pid, 2)
            os.kill(ranks[1], signal.SIGKILL)
            said = engine.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(engine.returncode, 1)
        self.assertIn("rank 1 was ended by signal 9", said)
        self.assertFalse(any(Path(f"/proc/{pid}").exists() for pid in ranks.values()))

    def await_ranks(self, parent, count):
        """Process numbers of the ranks, by rank, once that many are there."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                     for pid in children}
            found = {int(said[2]): int(pid) for pid, said in words.items()
                     if said[1:2] == [b"--rank"]}
            if len(found) == count:
                return found
            time.sleep(0.01)
        self.fail("the ranks did not start")

    def test_what_cannot_be_run_is_refused(self):
        for options, text in [(["--ranks", 0], "--ranks 0"), (["--setup", "all"], "--setup all"),
                              (["--steps", "4x"], "--steps 4x"), (["--nothing", 1], "--nothing 1"),
                              (["--odd", 101], "--odd 101"),
                              (["--dir"], "no folder of templates")]:
            said = self.run_engine(*options, status=2)
            self.assertTrue(re.match(f"tp_engine: {text}", said), said)
            self.assertIn("usage: ", said)
        self.assertIn("No such file", self.run_engine("--dir", self.folder / "none" / "of it",
                                                     status=1))
        (self.folder / "annotated-0").mkdir()
        said = self.run_engine("--setup", "annotated", "--dir", self.folder, status=1)
        self.assertIn("annotated-0: File exists", said)


if __name__ == "__main__":
    if "--gpu" in sys.argv and not examples.have_gpu():
        print("skipped: there is no GPU here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
