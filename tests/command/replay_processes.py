"""Statistics of many processes, of killed ones, and of a cache that changes meanwhile."""
import os
import subprocess
import time
import unittest

import harness
import replay
import serving

CROWD = 300

TINY = """/*jitcache
kernel: tiny
arguments:
  - {name: x, type: f32*}
*/
extern "C" __global__ void tiny(float *x) {}
"""

# A kernel for each of many values: together more than the cache below may hold, since each has its
# source.
MANY = """/*jitcache
kernel: many
parameters:
  - {name: n, type: int}
arguments:
  - {name: x, type: f32*}
*/
#include <jitcache.cuh>
extern "C" __global__ void many(float *x) { x[0] = JC_PARAM(n); }
""" + ("// " + "x" * 90 + "\n") * 2500
MANY_VALUES = 150


class Processes(replay.Case):
    def setUp(self):
        super().setUp()
        self.engine_env["JITCACHE_SIM_DEVICES"] = "1"

    def tiny_trace(self, steps=1):
        return self.write("trace", "\n".join(
            ["columns x", f"kernel {self.write('tiny.cu', TINY)}", "pass $x",
             *["step 0 1048576"] * steps, ""]))

    def launches(self):
        """What the cache's statistics say of the one kernel."""
        kernels, _ = self.read()
        return kernels.get(("tiny", 0), {}).get("launches", 0)

    def until(self, condition):
        end = time.monotonic() + harness.LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), end, self.processes)
            time.sleep(0.01)

    def test_hundreds_of_processes_count_once_each(self):
        trace = self.tiny_trace()
        self.replay(trace)  # so that the others find it compiled
        before = 0
        crowd = []
        with open(self.folder / "said", "w") as said:
            for _ in range(CROWD):
                crowd.append(subprocess.Popen([replay.REPLAY, trace, "hold"], stdout=said,
                                              stderr=said, stdin=subprocess.PIPE,
                                              env=self.engine_env))
                if len(crowd) % 30 == 0:
                    now = self.launches()
                    self.assertGreaterEqual(now, before)
                    before = now
        try:
            self.until(lambda: self.launches() == CROWD + 1)
            self.assertEqual(self.processes, {"running": CROWD, "ended": 1})
            self.run_command("stats")
        finally:
            for engine in crowd:
                engine.stdin.close()
        while any(engine.poll() is None for engine in crowd):
            self.assertEqual(self.launches(), CROWD + 1)
        self.assertEqual([engine.returncode for engine in crowd], [0] * CROWD,
                         (self.folder / "said").read_text())
        self.assertEqual(self.launches(), CROWD + 1)
        self.assertEqual(self.processes, {"running": 0, "ended": CROWD + 1})
        self.assertEqual(list(self.statistics.iterdir()), [])

    def test_what_a_killed_process_did_is_kept(self):
        trace = self.tiny_trace(1000)
        engine = self.start(trace, "times=0")
        self.until(lambda: self.launches() > 1000)
        self.assertEqual(self.processes, {"running": 1, "ended": 0})
        seen = self.launches()
        engine.kill()
        engine.communicate()
        # Asked not to write, the command counts what is left, and leaves it.
        self.env["JITCACHE_READONLY"] = "1"
        self.assertEqual(self.json("stats")["statistics"]["ended"], 0)
        self.assertNotEqual(list(self.statistics.iterdir()), [])
        del self.env["JITCACHE_READONLY"]
        self.assertEqual(self.json("stats")["statistics"]["ended"], 1)
        self.assertEqual(list(self.statistics.iterdir()), [])
        left = self.launches()
        self.assertGreaterEqual(left, seen)
        self.assertEqual(self.processes, {"running": 0, "ended": 1})
        self.assertEqual((self.launches(), self.processes["ended"]), (left, 1))
        self.run_command("stats")

    def test_a_process_that_ends_without_a_word_leaves_its_last_bulletin(self):
        trace = self.tiny_trace(5)
        engine = self.start(trace, "hold", "leave")
        self.until(lambda: self.launches() == 5)
        engine.communicate()
        self.assertEqual((self.launches(), self.processes), (5, {"running": 0, "ended": 1}))

    def test_a_storm_goes_on_while_its_process_runs(self):
        trace = serving.write(self.folder, [serving.steps(50, 1)], serving.GUILTY)
        engine = self.start(trace, "hold")

        def storms():
            told = self.json("stats")["statistics"]["storms"]
            return {storm["kernel"]: storm["goes_on"] for storm in told}
        try:
            self.until(lambda: storms() == dict.fromkeys(serving.GUILTY, True))
        finally:
            engine.communicate()
        self.assertEqual(storms(), dict.fromkeys(serving.GUILTY, False))

    def test_statistics_are_read_while_the_cache_is_rotated(self):
        self.env["JITCACHE_MAX_BYTES"] = "16M"
        values = "n=" + ",".join(map(str, range(MANY_VALUES)))
        with open(self.folder / "said", "w") as said:
            prewarm = subprocess.Popen(
                [harness.COMMAND, "prewarm", self.write("many.cu", MANY), "--arch", "9.0",
                 "--param", values], env=self.env, stdout=said, stderr=said)
            self.addCleanup(prewarm.wait)
            reads = 0
            while prewarm.poll() is None:
                self.run_command("stats")
                reads += 1
        self.assertGreater(reads, 1)
        kernels, _ = self.read()
        # What was compiled is not all there any more, and is counted all the same.
        self.assertGreaterEqual(kernels["many", -1]["compiles"], MANY_VALUES)
        self.assertLess(self.json("stats")["total"]["variants"], MANY_VALUES)

    def test_names_that_need_care_come_back_as_they_are(self):
        folder = self.folder / 'odd "name" é <b> \\n'
        folder.mkdir()
        trace = serving.write(folder, [serving.steps(50, 1)], serving.GUILTY)
        self.replay(trace)
        _, varying = self.read()
        self.assertEqual({(name, found["file"]) for (name, _, _), found in varying.items()},
                         {(name, str(folder / f"{name}.cu")) for name in serving.GUILTY})
        self.json("stats")


if __name__ == "__main__":
    harness.main()
