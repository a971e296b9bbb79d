"""`prewarm` with the real NVRTC and a real cache."""
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

import harness
from harness import ROPE, SILU

ARCH = ["--arch", "sm_90a"]

BROKEN = """/*jitcache
kernel: broken
parameters:
  - {name: good, type: bool}
arguments:
  - {name: x, type: f32*}
*/
#include <jitcache.cuh>
extern "C" __global__ void broken(float *x)
{
    static_assert(JC_PARAM(good), "not this one");
    x[0] = 1;
}
"""

# Enough variants that a signal comes while there is work left.
MANY = """/*jitcache
kernel: many
parameters:
  - {name: n, type: int}
arguments:
  - {name: x, type: f32*}
*/
#include <jitcache.cuh>
extern "C" __global__ void many(float *x) { x[0] = JC_PARAM(n); }
"""
MANY_VALUES = "n=" + ",".join(map(str, range(400)))


class Prewarming(harness.Case):
    def test_the_second_run_compiles_nothing(self):
        words = ["prewarm", SILU, ROPE, *ARCH, "--range", "num_tokens=1:8192",
                 "--param", "scale_format=fp32,ue8m0"]
        first = self.json(*words)
        self.assertGreater(first["planned"], 0)
        self.assertEqual((first["compiled"], first["hits"], first["failed"]),
                         (first["planned"], 0, 0))
        self.assertEqual(self.json("stats")["total"]["variants"], first["planned"])
        second = self.json(*words)
        self.assertEqual((second["compiled"], second["hits"], second["failed"]),
                         (0, first["planned"], 0))
        self.run_command(*words, "--check")
        records = self.json("ls", "--kind", "variant")["records"]
        self.assertEqual({(each["kernel"], each["arch"]) for each in records},
                         {("silu_mul_fp8_quant", "sm_90a"),
                          ("fused_inv_rope_fp8_quant", "sm_90a")})

    def test_show_tells_what_shipped_variants_use_and_that_none_spills(self):
        report = self.json("prewarm", SILU, ROPE, *ARCH, "--param", "scale_format=fp32,ue8m0",
                           "--param", "programmatic=false,true")
        records = self.json("ls", "--kind", "variant")["records"]
        self.assertEqual(len(records), report["planned"])
        for record in records:
            metadata = self.json("show", record["key"])["metadata"]
            self.assertEqual((metadata["spill_stores"], metadata["spill_loads"]), ("0", "0"),
                             record)
            self.assertIn(int(metadata["registers"]), range(16, 256), record)
        text = self.run_command("show", records[0]["key"]).out
        self.assertRegex(text, r"(?m)^registers +\d+$")
        self.assertRegex(text, r"(?m)^spill_stores +0$")

    def test_shipped_templates_compile_for_other_gpus(self):
        done = self.run_command("prewarm", ROPE, SILU, "--arch", "sm_89", "--arch", "sm_120a")
        self.assertIn("\nin all: 12 planned, 0 hits, 12 compiled, 0 failed", done.out)
        done = self.run_command("prewarm", SILU, "--arch", "sm_89", "--param", "programmatic=true",
                                status=1)
        self.assertIn("programmatic: needs compute capability 9.0", done.err)

    def test_json_has_the_documented_names(self):
        report = self.json("prewarm", SILU, *ARCH)
        counts = {"planned", "compiled", "hits", "missing", "failed", "awaited", "vouched",
                  "remaining"}
        self.assertEqual(set(report), counts | {"seconds", "interrupted", "files", "failures",
                                                "missing_list"})
        for name in counts:
            self.assertIs(type(report[name]), int)
        self.assertIs(type(report["seconds"]), float)
        self.assertIs(report["interrupted"], False)
        self.assertEqual(set(report["files"][0]), counts | {"kernel", "file", "seconds"})
        self.assertGreater(report["files"][0]["seconds"], 0)

    def test_check_finds_the_work_and_does_none_of_it(self):
        report = self.json("prewarm", SILU, *ARCH, "--check", status=1)
        self.assertEqual(report["compiled"], 0)
        self.assertEqual(report["missing"], report["planned"])
        self.assertEqual(len(report["missing_list"]), report["planned"])
        self.assertFalse(self.cache.exists())
        self.run_command("prewarm", SILU, *ARCH)
        self.assertEqual(self.json("prewarm", SILU, *ARCH, "--check")["missing"], 0)

    def test_check_names_what_is_missing_and_what_to_do(self):
        path = self.write("many.cu", MANY)
        words = ["prewarm", path, *ARCH, "--check", "--param"]
        text = self.run_command(*words, "n=" + ",".join(map(str, range(12))), status=1).out
        self.assertEqual(re.findall(r"(?m)^  missing: [0-9a-f]{12} many sm_90a n=(\d+) "
                                    r"generic$", text),
                         [str(number) for number in range(10)])
        self.assertRegex(text, r"\n  \.\.\. and 2 more; -v names them\n"
                               r"Run it without --check to compile them\.\n\Z")
        text = self.run_command(*words, "n=0", status=1).out
        self.assertRegex(text, r"n=0 generic\nRun it without --check to compile it\.\n\Z")
        self.run_command("prewarm", path, *ARCH, "--param", "n=0")
        text = self.run_command(*words, "n=0").out
        self.assertRegex(text, r"\Amany: 1 planned, 1 hit, 0 missing, 0 failed, .*\n\Z")

    def test_a_failure_of_before_says_so(self):
        path = self.write("broken.cu", BROKEN)
        words = ["prewarm", path, *ARCH, "--param", "good=0"]
        told = r"broken for sm_90a failed \d+ s ago, and was not tried again; --retry "
        self.assertNotRegex(self.run_command(*words, status=1).err, told)
        self.assertRegex(self.run_command(*words, status=1).err, told)
        self.assertNotRegex(self.run_command(*words, "--retry", status=1).err, told)

    def test_a_run_that_is_no_terminal_prints_one_line_for_each_file(self):
        text = self.run_command("prewarm", SILU, ROPE, *ARCH).out
        self.assertEqual([line.split(":")[0] for line in text.splitlines()],
                         ["silu_mul_fp8_quant", "fused_inv_rope_fp8_quant", "in all"])
        self.assertNotIn("\r", text)

    def test_a_terminal_shows_how_far_it_is(self):
        status, text = self.at_terminal("prewarm", SILU, *ARCH)
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"\r\[ *\d+/\d+\]")
        self.assertRegex(text, r"(?m)^.*\r\x1b\[Ksilu_mul_fp8_quant: \d+ planned")

    def test_one_that_fails_is_told_with_its_log_and_stops_no_other(self):
        path = self.write("broken.cu", BROKEN)
        words = ["prewarm", path, *ARCH, "--param", "good=0,1"]
        done = self.run_command(*words, status=1)
        self.assertRegex(done.err, r"\Ajitcache: .*broken\.cu: broken for sm_90a does not compile")
        self.assertRegex(done.err, r"(?m)^    broken\.cu\(11\): .*not this one")
        self.assertRegex(done.err, r"(?m)^    variant: [0-9a-f]{12} broken sm_90a good=false")
        report = self.json(*words, status=1)
        self.assertEqual((report["hits"], report["compiled"], report["failed"]),
                         (report["planned"] - len(report["failures"]), 0,
                          len(report["failures"])))
        self.assertEqual(set(report["failures"][0]),
                         {"kernel", "file", "arch", "specialization", "key", "message"})
        self.assertIn("not this one", report["failures"][0]["message"])

    def test_what_is_wrong_in_every_variant_is_told_once(self):
        path = self.write("broken.cu", BROKEN.replace("x[0] = 1", "JC_FACT(x); x[0] = nothing"))
        words = ["prewarm", path, *ARCH, "--param", "good=1"]
        done = self.run_command(*words, status=1)
        self.assertEqual(done.err.count("is undefined"), 1, done.err)
        self.assertRegex(done.err, r"\njitcache: 1 more variant of broken failed alike\n\Z")
        self.assertEqual(len(re.findall(r"\n  failed: [0-9a-f]{12} broken sm_90a good=true",
                                        done.out)), 2, done.out)
        done = self.run_command(*words, "-v", status=1)
        self.assertEqual(done.err.count("is undefined"), 1, done.err)
        self.assertRegex(done.err, r"(?m)^failed .* [0-9a-f]{12} broken sm_90a good=true generic$")
        self.assertEqual(len(self.json(*words, status=1)["failures"]), 2)

    def test_a_group_of_no_heads_is_refused(self):
        for heads in ("0", "-1", "2147483648"):
            words = ["prewarm", ROPE, *ARCH, "--generic", "--param", "heads_per_group=" + heads]
            self.assertIn("how many heads an output group has: at least 1",
                          self.run_command(*words, status=1).err)

    def test_a_failed_compile_can_be_shown_and_tried_again(self):
        path = self.write("broken.cu", BROKEN)
        words = ["prewarm", path, *ARCH, "--param", "good=0"]
        self.run_command(*words, status=1)
        failure = self.json("ls", "--kind", "failure")["records"][0]
        self.assertEqual(failure["kernel"], "broken")
        self.assertIn("not this one", self.run_command("show", failure["key"]).out)
        self.run_command(*words, "--retry", status=1)

    def test_the_cubin_of_a_variant_is_an_elf_file(self):
        self.run_command("prewarm", SILU, *ARCH)
        key = self.json("ls", "--kind", "variant")["records"][0]["key"]
        path = self.folder / "silu.cubin"
        self.run_command("show", key, "--cubin", "-o", path)
        self.assertEqual(path.read_bytes()[:4], b"\x7fELF")
        with open(SILU, "rb") as source:
            self.assertEqual(self.run_command("show", key, "--source").stdout, source.read())
        self.assertIn("arch=sm_90a\n", self.run_command("show", key, "--key").out)

    def test_a_library_between_us_and_the_compiler_counts_the_same(self):
        before = self.forward()
        words = ["prewarm", SILU, ROPE, *ARCH, "--param", "scale_format=fp32,ue8m0"]
        compiled = self.json(*words)["compiled"]
        self.assertGreater(compiled, 0)
        self.assertEqual(self.forward() - before, compiled)
        self.assertEqual(self.json(*words)["compiled"], 0)
        self.run_command(*words, "--check")
        self.assertEqual(self.forward() - before, compiled)

    def test_an_include_that_cannot_be_followed_stops_every_file_before_the_first(self):
        path = self.write("computed.cu", BROKEN.replace("<jitcache.cuh>", "NAME"))
        words = ["prewarm", SILU, path, *ARCH, "--param", "good=1"]
        for more in [[], ["--json"], ["--check"]]:
            self.assertIn("computed.cu:8", self.complaint(*words, *more))
        self.assertEqual(self.json("ls", "--kind", "variant")["records"], [])

    def test_an_unknown_architecture_is_told(self):
        for arch in ["sm_42", "hopper"]:
            self.assertIn(arch, self.complaint("prewarm", SILU, ROPE, "--arch", arch))
            self.assertIn(arch, self.complaint("prewarm", SILU, "--arch", arch, "--json"))

    def test_a_compiler_or_worker_that_is_not_there_is_told(self):
        for option in ["--nvrtc", "--worker"]:
            message = self.run_command("prewarm", SILU, *ARCH, option, "/no/such/file",
                                       status=2).err
            self.assertIn("/no/such/file", message)

    def forward(self, act=None):
        """Puts a library before the real one, which counts and can misbehave. The count."""
        if "JITCACHE_NVRTC_COUNT" not in self.env:
            found = self.run_command("prewarm", SILU, *ARCH, "--check", "-v", "--dir",
                                     self.folder / "none", status=1).err
            self.env.update(JITCACHE_NVRTC=os.environ["JITCACHE_FORWARD_NVRTC"],
                            JITCACHE_REAL_NVRTC=re.search(r"NVRTC \S+ at (\S+),", found)[1],
                            JITCACHE_NVRTC_COUNT=str(self.folder / "count"))
        self.env.pop("JITCACHE_NVRTC_ACT", None)
        if act:
            self.env["JITCACHE_NVRTC_ACT"] = act
        path = self.folder / "count"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def left_running(self):
        """Processes that have this test's folder in their environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if str(self.folder).encode() in path.read_bytes():
                    found.append((path.parent / "cmdline").read_bytes())
            except OSError:  # gone by now, or of somebody else
                pass
        return [each for each in found if each]

    def expect_nothing_left(self):
        end = time.monotonic() + 30
        while self.left_running() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.left_running(), [])

    def many(self, count):
        return ["prewarm", self.write("many.cu", MANY), *ARCH, "--param",
                "n=" + ",".join(map(str, range(count)))]

    # --- several at once -------------------------------------------------------------------------

    def test_a_manifest_is_compiled_and_its_next_run_takes_no_compiler(self):
        self.write("many.cu", MANY)
        self.write("list", f"jitcache-manifest 1\nmany.cu --param n=1,2 --arch sm_90a\n{SILU}\n"
                           "many.cu --param n=3 --arch sm_80\n")
        words = ["prewarm", self.folder / "list", "--arch", "sm_100", "-j", 2]
        report = self.json(*words)
        self.assertGreater(report["compiled"], 3)
        self.assertEqual(report["compiled"], report["planned"])
        archs = {(each["kernel"], each["arch"])
                 for each in self.json("ls", "--kind", "variant")["records"]}
        self.assertEqual(archs, {("many", "sm_90a"), ("many", "sm_80"),
                                 ("silu_mul_fp8_quant", "sm_100a")})
        self.env["JITCACHE_WORKER"] = "/no/such/file"
        again = self.json(*words)
        self.assertEqual((again["hits"], again["vouched"]), 2 * (report["planned"],))
        self.assertIn("; complete since an earlier run\n", self.run_command(*words).out)

    def test_two_runs_at_once_compile_each_variant_once(self):
        before = self.forward()
        words = [harness.COMMAND, *self.many(30), "--json"]
        runs = [subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE) for _ in range(3)]
        reports = [json.loads(run.communicate(timeout=harness.LIMIT_S)[0]) for run in runs]
        self.assertEqual([run.returncode for run in runs], [0, 0, 0])
        self.assertEqual(sum(each["compiled"] for each in reports), 30)
        self.assertEqual({each["hits"] + each["compiled"] for each in reports}, {30})
        self.assertEqual(self.forward() - before, 30)

    def wait_for_compiles(self, count):
        """Until that many have begun."""
        end = time.monotonic() + harness.LIMIT_S
        while self.forward() < count and time.monotonic() < end:
            time.sleep(0.002)
        self.assertGreaterEqual(self.forward(), count)

    def test_a_run_that_is_killed_goes_on_where_it_was(self):
        before = self.forward()
        seed = random.Random(4)
        for _ in range(10):
            run = subprocess.Popen([harness.COMMAND, *self.many(100)], env=self.env,
                                   stdout=subprocess.DEVNULL)
            self.wait_for_compiles(self.forward() + seed.randint(1, 7))
            run.kill()
            run.wait()
        self.expect_nothing_left()
        stored = len(self.json("ls", "--kind", "variant")["records"])
        compiled = self.forward() - before
        self.assertGreater(stored, 0)
        report = self.json(*self.many(100))
        self.assertEqual((report["hits"], report["compiled"]), (stored, 100 - stored))
        self.assertGreater(report["compiled"], 0)
        self.assertEqual(self.forward() - before, compiled + 100 - stored)

    def test_few_descriptors_are_enough(self):
        for limit in [64, 40]:
            done = subprocess.run(
                ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "-", harness.COMMAND, *self.many(20),
                 "--jobs", "32", "--dir", self.folder / str(limit), "--json"],
                env=self.env, capture_output=True, timeout=harness.LIMIT_S, check=True)
            self.assertEqual(json.loads(done.stdout)["compiled"], 20)
            for line in done.stderr.splitlines():
                self.assertTrue(line.startswith(b"jitcache: warning: "), line)

    # --- from the cache --------------------------------------------------------------------------

    def test_from_the_cache_gives_what_the_files_would(self):
        path = self.write("many.cu", MANY)
        words = ["prewarm", path, SILU, "--param", "n=1,2"]
        planned = self.json(*words, *ARCH)["planned"]
        os.unlink(path)
        self.assertEqual(self.json("prewarm", "--from-cache", "--check")["hits"], planned)
        report = self.json("prewarm", "--from-cache", "--arch", "sm_100")
        self.assertEqual(report["compiled"], planned)
        self.write("many.cu", MANY)
        self.assertEqual(self.json(*words, "--arch", "sm_100")["hits"], planned)

    def test_a_check_of_the_cache_names_what_each_kernel_misses(self):
        many, other = self.write("many.cu", MANY), self.write("other.cu", BROKEN)
        values = ["--param", "n=1,2", "--param", "good=1"]
        self.run_command("prewarm", many, other, *ARCH, *values)
        self.run_command("prewarm", other, "--arch", "sm_100", *values[2:])
        words = ["prewarm", "--from-cache", "--check"]
        self.assertRegex(self.run_command(*words).out, r"\Afrom the cache: \d+ planned, \d+ hits,"
                                                       r" 0 missing, 0 failed, .*\n\Z")
        words += ["--arch", "sm_80", "--arch", "sm_100"]
        report = self.json(*words, status=1)
        self.assertEqual({each["kernel"]: (each["file"], each["missing"])
                          for each in report["files"]}, {"many": (None, 4), "broken": (None, 1)})
        text = self.run_command(*words, status=1).out
        self.assertRegex(text, r"(?m)^many: 4 missing\n"
                               r"(  missing: [0-9a-f]{12} many sm_(80|100a) n=\d generic\n){4}")
        self.assertRegex(text, r"(?m)^broken: 1 missing\n"
                               r"  missing: [0-9a-f]{12} broken sm_80 good=true generic\n")
        self.assertRegex(text, r"(?m)^from the cache: \d+ planned, \d+ hits?, 5 missing, 0 failed,")

    def test_ls_finds_what_a_gpu_was_compiled_for(self):
        self.run_command("prewarm", SILU, "--arch", "sm_90")
        count = len(self.json("ls", "--kind", "variant")["records"])
        for arch in ["sm_90", "9.0", "90", "sm_90a", "9.0a"]:
            self.assertEqual(len(self.json("ls", "--arch", arch, "--kind", "variant")["records"]),
                             count, arch)
        for arch in ["sm_9", "9", "sm_90b", "sm_900", "sm_100", "hopper"]:
            self.assertEqual(self.json("ls", "--arch", arch)["records"], [], arch)

    def test_an_empty_cache_has_nothing_to_give(self):
        self.run_command("prewarm", SILU, *ARCH)
        self.run_command("clear", "--yes")
        self.complaint("prewarm", "--from-cache")

    def test_digits_of_a_key_choose_one_variant(self):
        self.run_command(*self.many(5))
        key = self.json("ls", "--kind", "variant")["records"][2]["key"]
        self.run_command("clear", "--yes")
        report = self.json(*self.many(5), "--key", key[:12].upper())
        self.assertEqual((report["planned"], report["compiled"]), (1, 1))
        self.assertEqual([each["key"] for each in self.json("ls", "--kind", "variant")["records"]],
                         [key])
        unlike = key[:12].translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
        self.assertIn(unlike, self.complaint(*self.many(5), "--key", unlike))
        self.complaint("prewarm", "--from-cache", "--key", unlike)

    # --- what goes wrong -------------------------------------------------------------------------

    def test_a_compiler_that_crashes_costs_one_variant_and_its_command_tries_it(self):
        marked = self.write("marked.cu", MANY.replace("many", "marked"))
        words = ["prewarm", self.many(1)[1], marked, *ARCH, "--param", "n=0,1,2"]
        self.forward("segv@void marked")
        done = self.run_command(*words, status=1)
        self.assertIn("3 compiled, 3 failed", done.out)
        self.assertEqual(sorted(re.findall(r"(?m)^  failed: [0-9a-f]{12} marked sm_90a "
                                           r"n=(\d) generic$", done.out)), ["0", "1", "2"])
        commands = re.findall(r"(?m)^    .*\b(jitcache prewarm .*)$", done.err)
        self.assertEqual(len(set(commands)), 3, done.err)
        self.forward()
        for command in commands:
            program, *told = shlex.split(command)
            self.assertEqual(program, "jitcache")
            self.assertIn("1 planned, 0 hits, 1 compiled", self.run_command(*told).out)
        self.assertEqual(self.json(*words)["hits"], 6)
        self.expect_nothing_left()

    def test_a_compile_that_takes_too_long_is_ended(self):
        marked = self.write("marked.cu", MANY.replace("many", "marked"))
        self.forward("hang@void marked")
        words = ["prewarm", marked, self.many(1)[1], *ARCH, "--param", "n=0", "--timeout", "1.5"]
        begin = time.monotonic()
        done = self.run_command(*words, status=1)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertIn("1 compiled, 1 failed", done.out)
        self.assertRegex(done.err, r"(?m)^    .*jitcache prewarm .*--key \w+")
        self.expect_nothing_left()

    def test_a_worker_that_is_missing_is_told_once_and_only_where_it_is_needed(self):
        self.run_command(*self.many(3))
        self.env["JITCACHE_WORKER"] = "/no/such/file"
        self.run_command(*self.many(3))
        self.assertIn("/no/such/file", self.complaint(*self.many(4)))

    def kill_all(self, worker):
        """Every process of a program: of no other, such as a sanitizer's at the end."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes().split(b"\0")[0] == str(worker).encode():
                    os.kill(int(path.parent.name), signal.SIGKILL)
            except OSError:  # gone by now
                pass

    def test_a_worker_that_goes_away_meanwhile_is_one_error(self):
        before = self.forward()
        worker = self.folder / "worker"
        shutil.copy(harness.WORKER, worker)
        run = subprocess.Popen([harness.COMMAND, *self.many(200), "--worker", worker], env=self.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.kill)
        self.wait_for_compiles(before + 3)
        worker.unlink()
        while run.poll() is None:
            self.kill_all(worker)
            time.sleep(0.05)
        out, err = run.communicate(timeout=harness.LIMIT_S)
        self.assertEqual(run.returncode, 2, err)
        self.assertEqual(len([line for line in err.splitlines() if "warning" not in line]), 1, err)
        self.assertIn(str(worker), err)
        self.assertIn("not reached", out)
        self.expect_nothing_left()

    def test_what_is_taken_from_the_cache_meanwhile_is_told(self):
        before = self.forward()
        bad = self.write("broken.cu", BROKEN)
        words = [harness.COMMAND, *self.many(40), "-j", "1", "--param", "good=0", bad, "--json"]
        run = subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(run.kill)
        self.wait_for_compiles(before + 10)
        self.run_command("clear", "--yes")
        report = json.loads(run.communicate(timeout=harness.LIMIT_S)[0])
        self.assertEqual(run.returncode, 1, report)
        self.assertEqual((report["compiled"], report["failed"], len(report["failures"])),
                         (40, 1, 1))
        self.assertGreater(report["missing"], 0)
        self.assertEqual(len(report["missing_list"]), report["missing"])
        self.assertEqual({each["kernel"] for each in report["missing_list"]}, {"many"})
        report = self.json(*self.many(40))
        self.assertEqual(report["hits"] + report["compiled"], 40)
        self.assertEqual(report["missing"], 0)

    # --- signals ---------------------------------------------------------------------------------

    def test_an_interrupt_ends_it_at_once(self):
        words = ["prewarm", self.write("many.cu", MANY), *ARCH, "--param", MANY_VALUES]
        for number in [signal.SIGINT, signal.SIGTERM]:
            status, text = self.at_terminal(*words, stop_at=rb"\[ *[1-9]\d*/400\]",
                                            stop_with=number)
            self.assertEqual(status, 128 + number, text)
            self.assertIn("run the same command again to go on", text)
            self.assertLess(int(re.search(r"(\d+) compiled", text)[1]), 400)
            self.expect_nothing_left()
        self.assertGreater(self.json("stats")["total"]["variants"], 0)

    def test_an_interrupt_does_not_wait_for_a_compile_that_hangs(self):
        self.forward("hang")
        begin = time.monotonic()
        status, text = self.at_terminal(*self.many(4), stop_at=rb"\d compiling")
        self.assertEqual(status, 130, text)
        self.assertLess(time.monotonic() - begin, 30)
        self.expect_nothing_left()

    def test_an_interrupt_does_not_wait_for_a_worker_that_does_not_start(self):
        self.run_command(*self.many(1))
        self.env["JITCACHE_WORKER"] = self.write("silent", "#!/bin/sh\nsleep 1000\n")
        os.chmod(self.env["JITCACHE_WORKER"], 0o700)
        begin = time.monotonic()
        run = subprocess.Popen([harness.COMMAND, *self.many(2)], env=self.env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(run.kill)
        while not any(b"silent" in each for each in self.left_running()):
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(timeout=harness.LIMIT_S), 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - begin, 30)

    def test_a_signal_to_it_and_to_its_group_leaves_a_summary(self):
        before = self.forward("hang")
        run = subprocess.Popen([harness.COMMAND, *self.many(4), "-j", "1"], env=self.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
        self.addCleanup(run.kill)
        self.wait_for_compiles(before + 1)
        os.kill(run.pid, signal.SIGTERM)
        os.killpg(run.pid, signal.SIGTERM)
        out, err = run.communicate(timeout=harness.LIMIT_S)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, err)
        self.assertIn(b"many: 4 planned, 0 hits, 0 compiled, 0 failed, 4 not reached, ", out)
        self.expect_nothing_left()

    def test_one_that_is_stopped_goes_on_when_it_is_told_to(self):
        before = self.forward()
        hold = Path(self.write("hold", ""))
        run = subprocess.Popen([harness.COMMAND, *self.many(20), "--json"],
                               env={**self.env, "JITCACHE_NVRTC_HOLD": str(hold)},
                               stdout=subprocess.PIPE)
        self.addCleanup(run.kill)
        self.wait_for_compiles(before + 1)
        run.send_signal(signal.SIGSTOP)  # SIGTSTP stops nobody who has no shell to go on from
        self.assertTrue(os.WIFSTOPPED(os.waitpid(run.pid, os.WUNTRACED)[1]))
        hold.unlink()
        run.send_signal(signal.SIGCONT)
        report = json.loads(run.communicate(timeout=harness.LIMIT_S)[0])
        self.assertEqual((report["compiled"], report["failed"]), (20, 0))

    def test_without_standard_streams_it_compiles_all_the_same(self):
        done = subprocess.run([harness.COMMAND, *self.many(5)], env=self.env,
                              timeout=harness.LIMIT_S,
                              preexec_fn=lambda: [os.close(stream) for stream in range(3)])
        self.assertEqual(done.returncode, 2)  # the summary was lost
        self.assertEqual(self.json("stats")["total"]["variants"], 5)


if __name__ == "__main__":
    harness.main()
