"""A serving engine's trace, replayed: what statistics say of it, and what following them does.

See serving.py for the trace and replay.c for the engine. The driver is the simulated one, the
compiler the real NVRTC, counted by the one in front of it.
"""
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

import harness
import serving

REPLAY = os.environ["JITCACHE_REPLAY"]
SIM = os.environ["JITCACHE_SIM_FOLDER"]
DEVICES = 2
STEPS = 1000  # of each device
LAYERS = 2


def numbers(text):
    """The fields of a line, `name=1,2` as a list."""
    return {name: [int(number) for number in values.split(",")] if "," in values else int(values)
            for name, values in re.findall(r"(\w+)=([\d,]+)", text)}


class Case(harness.Case):
    def setUp(self):
        super().setUp()
        self.count = self.folder / "count"
        self.statistics = self.folder / "statistics"
        self.processes = None  # as read() has seen them last
        found = re.search(r"NVRTC \S+ at (\S+),", self.run_command(
            "prewarm", "-v", harness.SILU, "--arch", "9.0", "--generic", "--check",
            status=1).err)
        self.env.update(JITCACHE_NVRTC=os.environ["JITCACHE_FORWARD_NVRTC"],
                        JITCACHE_REAL_NVRTC=found[1], JITCACHE_NVRTC_COUNT=str(self.count),
                        JITCACHE_STATS=str(self.statistics))
        self.engine_env = dict(self.env, JITCACHE_SIM_DEVICES=str(DEVICES), LD_LIBRARY_PATH=SIM
                               + ":" + os.environ.get("LD_LIBRARY_PATH", ""))

    def start(self, *words, **variables):
        return subprocess.Popen([REPLAY, *map(str, words)], env=dict(self.engine_env, **variables),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def replay(self, *words, **variables):
        """What was seen from outside, when it was warm and at the end; and what it logged."""
        process = self.start(*words, **variables)
        out, err = process.communicate(timeout=harness.LIMIT_S)
        self.assertEqual(process.returncode, 0, out + err)
        return numbers(out.splitlines()[0]), numbers(out.splitlines()[1]), err

    def read(self):
        """What jc_stats_read says of the cache: kernels by name and device, what varies likewise.
        """
        done = subprocess.run([REPLAY, "--read"], env=self.env, capture_output=True, text=True,
                              timeout=harness.LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\ntrouble", done.stdout)
        kernels, varying = {}, {}
        lines = done.stdout.splitlines()
        for index, line in enumerate(lines):
            word, *rest = line.split(" ", 3)
            if word == "processes":
                self.processes = numbers(line)
            elif word == "kernel":
                kernels[rest[0], int(rest[1])] = numbers(line)
            elif word == "varying":
                number, _, place = line.partition(" at=")
                found = numbers(number)
                found["line"], found["file"] = int(place.split(":")[0]), place.partition(":")[2]
                found["replacement"] = lines[index + 1].removeprefix("replacement ")
                varying[rest[0], int(rest[1]), rest[2].split()[0]] = found
        return kernels, varying

    def follow(self, advice):
        """Writes the replacement in place of the item that begins at that line: nothing else."""
        path = Path(advice["file"])
        lines = path.read_text().splitlines(keepends=True)
        first = advice["line"] - 1
        indent = re.match(r" *- ", lines[first])
        self.assertTrue(indent, f"no item begins there: {lines[first]}")
        width = len(indent[0]) - 2
        end = first + 1
        # What is indented further belongs to the item.
        while re.match(rf" {{{width + 1},}}\S", lines[end]):
            end += 1
        lines[first:end] = [" " * width + advice["replacement"] + "\n"]
        path.write_text("".join(lines))


class Replay(Case):
    def setUp(self):
        super().setUp()
        self.trace = [serving.steps(STEPS, seed) for seed in range(DEVICES)]
        self.path = serving.write(self.folder, self.trace)

    def check_counts(self, warm, end):
        """The counts of the library are those of the driver and of NVRTC."""
        kernels, _ = self.read()
        self.assertEqual(set(kernels), {(kernel.name, device) for kernel in serving.kernels()
                                        for device in range(DEVICES)})
        for device in range(DEVICES):
            rows = [row for (_, on), row in kernels.items() if on == device]
            for row in rows:
                self.assertEqual(row["launches"], STEPS * LAYERS)
            self.assertEqual(sum(row["launches"] for row in rows),
                             end["launches"][device] - warm["launches"][device])
            self.assertEqual(sum(row["loads"] for row in rows), end["loads"][device])
        self.assertEqual(sum(row.get("compiles", 0) for row in kernels.values()), end["compiles"])
        return kernels

    def expect_storms(self):
        """The three are named, on each device, and no other; with the numbers of the trace."""
        _, varying = self.read()
        expected = {(kernel, device, serving.GUILTY[kernel]): states
                    for device in range(DEVICES)
                    for kernel, states in serving.states(self.trace[device]).items()}
        self.assertEqual({key: found["states"] for key, found in varying.items()}, expected)
        for key, found in varying.items():
            self.assertEqual(found["more"], 0, key)
        # As a program reads it, and as people do.
        storms = self.json("stats")["statistics"]["storms"]
        self.assertEqual({(storm["kernel"], device["device"], found["name"]): found["states"]
                          for storm in storms for device in storm["devices"]
                          for found in device["varying"]}, expected)
        self.assertEqual([storm["goes_on"] for storm in storms], [False] * len(serving.GUILTY))
        shown = self.run_command("stats", "-v").out
        self.assertEqual(re.findall(r"(?m)^Storms: (\d+)$", shown), [str(len(serving.GUILTY))])
        self.assertEqual(sorted(re.findall(r"argument (\w+) took (\d+) ", shown)),
                         sorted((found["name"], str(found["states"]))
                                for storm in storms for found in storm["varying"]))
        for storm in storms:
            most = max(states for (kernel, *_), states in expected.items()
                       if kernel == storm["kernel"])
            self.assertGreaterEqual(storm["varying"][0]["states"], most)
        return varying

    def start_anew(self):
        shutil.rmtree(self.cache)
        self.count.unlink()

    def set_to_zero(self):
        self.run_command("stats", "--zero")
        self.count.unlink()

    def check_mode(self, again, *words, **variables):
        warm, end, err = self.replay(self.path, f"layers={LAYERS}", *words, **variables)
        self.assertGreater(end["compiles"], warm["compiles"])
        self.check_counts(warm, end)
        for found in {found["file"]: found for found in self.expect_storms().values()}.values():
            self.follow(found)
        again()
        warm, end, err = self.replay(self.path, f"layers={LAYERS}", *words, **variables)
        self.assertEqual((end["compiles"], end["loads"], err),
                         (warm["compiles"], warm["loads"], ""))
        kernels = self.check_counts(warm, end)
        self.assertEqual(self.read()[1], {})
        self.assertEqual(self.json("stats")["statistics"]["storms"], [])
        self.assertEqual(sum(row.get("queued", 0) + row.get("stalls", 0) + row.get("storms", 0)
                             for row in kernels.values()), 0)

    def test_who_waits_is_told_what_to_write_and_waits_no_more(self):
        self.check_mode(self.start_anew)

    def test_who_takes_the_generic_one_is_told_what_to_write(self):
        self.check_mode(self.set_to_zero, JITCACHE_POLICY="generic")

    def test_what_comes_after_the_seal_is_told_as_well(self):
        self.check_mode(self.set_to_zero, "seal")

    def test_more_values_than_are_kept_are_told_as_more(self):
        trace = [serving.steps(8000, 3)]
        self.assertGreater(serving.states(trace[0])["silu_and_mul"], 1024)
        self.replay(serving.write(self.folder, trace, serving.GUILTY), JITCACHE_SIM_DEVICES="1",
                    JITCACHE_POLICY="generic")
        _, varying = self.read()
        self.assertEqual({key: (found["states"], found["more"]) for key, found in varying.items()},
                         {("silu_and_mul", 0, "num_tokens"): (1024, 1),
                          ("dynamic_quant_fp8", 0, "scale_stride"): (4, 0),
                          ("qk_norm", 0, "qkv_stride"): (2, 0)})
        self.assertIn("argument num_tokens took over 1,024 values", self.run_command("stats").out)


if __name__ == "__main__":
    harness.main()
