"""`prewarm` with the real NVRTC and a real cache."""
import os
import re
import signal
import unittest

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

    def test_json_has_the_documented_names(self):
        report = self.json("prewarm", SILU, *ARCH)
        counts = {"planned", "compiled", "hits", "missing", "failed"}
        self.assertEqual(set(report), counts | {"seconds", "interrupted", "files", "failures",
                                                "missing_list"})
        for name in counts:
            self.assertIs(type(report[name]), int)
        self.assertIs(type(report["seconds"]), float)
        self.assertIs(report["interrupted"], False)
        self.assertEqual(set(report["files"][0]), counts | {"kernel", "file", "seconds"})

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
        self.assertEqual(re.findall(r"(?m)^  missing: sm_90a n=(\d+) generic$", text),
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
        told = r"broken for sm_90a failed \d+ s ago, and was not tried again; `retry` \(--retry\)"
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
        self.assertRegex(text, r"\r\S.*silu_mul_fp8_quant")
        self.assertRegex(text, r"(?m)^.*\r\x1b\[Ksilu_mul_fp8_quant: \d+ planned")

    def test_one_that_fails_is_told_with_its_log_and_stops_no_other(self):
        path = self.write("broken.cu", BROKEN)
        words = ["prewarm", path, *ARCH, "--param", "good=0,1"]
        done = self.run_command(*words, status=1)
        self.assertRegex(done.err, r"\Ajitcache: .*broken\.cu: broken for sm_90a does not compile")
        self.assertRegex(done.err, r"(?m)^    broken\.cu\(11\): .*not this one")
        self.assertRegex(done.err, r"(?m)^    variant: broken sm_90a good=false")
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
        self.assertRegex(done.err, r"\n    1 more variant of broken failed alike; -v names it\n\Z")
        done = self.run_command(*words, "-v", status=1)
        self.assertEqual(done.err.count("is undefined"), 1, done.err)
        self.assertRegex(done.err, r"(?m)^failed .* broken sm_90a good=true generic$")
        self.assertEqual(len(self.json(*words, status=1)["failures"]), 2)

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
        count = self.folder / "count"
        found = self.run_command("prewarm", SILU, *ARCH, "--check", "-v", status=1).err
        real = re.search(r"NVRTC \S+ at (\S+),", found)[1]
        self.env.update(JITCACHE_NVRTC=os.environ["JITCACHE_FORWARD_NVRTC"],
                        JITCACHE_REAL_NVRTC=real, JITCACHE_NVRTC_COUNT=str(count))
        words = ["prewarm", SILU, ROPE, *ARCH, "--param", "scale_format=fp32,ue8m0"]
        compiled = self.json(*words)["compiled"]
        self.assertGreater(compiled, 0)
        self.assertEqual(len(count.read_text().splitlines()), compiled)
        self.assertEqual(self.json(*words)["compiled"], 0)
        self.run_command(*words, "--check")
        self.assertEqual(len(count.read_text().splitlines()), compiled)

    def test_an_include_that_cannot_be_followed_stops_every_file_before_the_first(self):
        path = self.write("computed.cu", BROKEN.replace("<jitcache.cuh>", "NAME"))
        words = ["prewarm", SILU, path, *ARCH, "--param", "good=1"]
        for more in [[], ["--json"], ["--check"]]:
            self.assertIn("computed.cu:8", self.complaint(*words, *more))
        self.assertEqual(self.json("ls")["records"], [])

    def test_an_unknown_architecture_is_told(self):
        for arch in ["sm_42", "hopper"]:
            self.assertIn(arch, self.complaint("prewarm", SILU, ROPE, "--arch", arch))
            self.assertIn(arch, self.complaint("prewarm", SILU, "--arch", arch, "--json"))

    def test_a_compiler_or_worker_that_is_not_there_is_told(self):
        for option in ["--nvrtc", "--worker"]:
            message = self.run_command("prewarm", SILU, *ARCH, option, "/no/such/file",
                                       status=2).err
            self.assertIn("/no/such/file", message)

    def test_an_interrupt_ends_it_between_two_variants(self):
        path = self.write("many.cu", MANY)
        words = ["prewarm", path, *ARCH, "--param", MANY_VALUES]
        for number in [signal.SIGINT, signal.SIGTERM]:
            status, text = self.at_terminal(*words, stop_at=b"/400]", stop_with=number)
            self.assertEqual(status, 128 + number, text)
            self.assertIn("interrupted", text)
            compiled = int(re.search(r"(\d+) compiled", text)[1])
            self.assertLess(compiled, 400)
        self.assertGreater(self.json("stats")["total"]["variants"], 0)


if __name__ == "__main__":
    harness.main()
