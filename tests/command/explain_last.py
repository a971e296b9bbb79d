"""`explain --last` finds the newest compile and what is nearest to it, and says it in words."""
import re
import time
import unittest

import harness

TEMPLATE = """/*jitcache
kernel: copy
arguments:
  - {name: to, type: f32*}
  - {name: n, type: i32, facets: [value]}
  - {name: stride, type: i64}
launch: {grid: [1, 1, 1], block: [1, 1, 1]}
*/
#include <jitcache.cuh>
extern "C" __global__ void copy(float *to, int n, long long stride)
{
    JC_FACT(n);
    JC_FACT(stride);
    to[n * stride] = 1;
}
"""

PLAIN = TEMPLATE.replace(", facets: [value]", "")
ONE = "only one of its kernel: there is nothing to compare"


class ExplainLast(harness.Case):
    def setUp(self):
        super().setUp()
        self.template = self.write("copy.cu", PLAIN)

    def compile(self, n, stride, template=None, status=0):
        """Makes the variant of such calls, in a later millisecond than all others."""
        time.sleep(0.002)
        self.run_command("prewarm", template or self.template, "--arch", "sm_90a", "--range",
                         f"n={n}", "--range", f"stride={stride}", status=status)

    def generic(self, template=None):
        """Makes the generic variant, which comes with the first plan and is to be the oldest."""
        self.run_command("prewarm", template or self.template, "--arch", "sm_90a", "--generic")

    def facets(self, side):
        lines = self.json("show", side["key"])["key_lines"]
        return sorted(line[6:] for line in lines if line.startswith("facet."))

    def last(self, *words):
        return self.json("explain", "--last", *words)

    def test_the_nearest_is_the_one_that_differs_in_the_fewest_things(self):
        self.generic()
        self.compile(16, 16)
        self.compile(1, 1)
        self.compile(16, 1)
        self.compile(3, 16)
        told = self.last()
        self.assertEqual(self.facets(told["b"]), ["stride=div:16"])
        self.assertEqual(self.facets(told["a"]), ["n=div:16", "stride=div:16"])
        self.assertEqual(told["last"], {"older": 4, "compared": 3})
        self.assertEqual([(each["name"], each["a"], each["b"]) for each in told["differences"]],
                         [("n", "div:16", None)])

    def test_among_equals_the_newest_is_taken(self):
        self.generic()
        self.compile(16, 16)
        self.compile(1, 16)
        self.compile(3, 16)
        self.assertEqual(self.facets(self.last()["a"]), ["n=one", "stride=div:16"])

    def test_one_that_knows_facts_goes_before_the_generic_variant(self):
        self.compile(16, 5)
        self.generic()
        self.compile(1, 5)
        self.assertEqual(self.facets(self.last()["a"]), ["n=div:16"])

    def test_words_say_which_fact_and_which_annotation(self):
        self.generic()
        self.compile(16, 16)
        self.compile(1, 16)
        text = self.run_command("explain", "--last").out
        told = self.last()
        self.assertTrue(text.startswith("B is the newest compile of copy, A the nearest of 2 older"
                                        f" ones:\n\nA  {told['a']['key']}  variant  copy"), text)
        self.assertRegex(text, r"\n   compiled \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(.*\), in \d+ ms\nB")
        self.assertIn("B is for calls where n is 1, A where it is a multiple of"
                      " 16.\nWith that annotation both calls would have used one variant.", text)
        self.assertIn("do_not_specialize: true on n keeps this out of the key", text)

    def test_json_says_when_and_how_long(self):
        self.generic()
        self.compile(1, 16)
        told = self.last()
        self.assertEqual(set(told), {"a", "b", "same", "same_kernel", "differences", "texts",
                                     "last"})
        for side in told["a"], told["b"]:
            self.assertEqual(set(side), {"key", "kind", "kernel", "arch", "compile_seconds",
                                         "created_ms"})
            self.assertGreater(side["compile_seconds"], 0)
        self.assertGreater(told["b"]["created_ms"], told["a"]["created_ms"])

    def test_one_variant_alone_says_so(self):
        self.generic()
        text = self.run_command("explain", "--last").out
        self.assertTrue(text.startswith("B is the newest compile of copy:\n\nB  "), text)
        self.assertIn(ONE, text)
        told = self.last()
        self.assertIsNone(told["a"])
        self.assertEqual((told["b"]["kernel"], told["differences"], told["same_kernel"]),
                         ("copy", [], False))

    def test_a_kernel_can_be_named(self):
        self.generic()
        self.compile(1, 16)
        other = self.write("other.cu", PLAIN.replace("copy", "other"))
        self.generic(other)
        self.assertEqual(self.last()["b"]["kernel"], "other")
        self.assertIn(ONE, self.run_command("explain", "--last").out)
        self.assertEqual(self.last("--kernel", "co*")["b"]["kernel"], "copy")
        self.assertIn("nothing was compiled of a kernel 'fold'",
                      self.complaint("explain", "--last", "--kernel", "fold"))

    def test_an_edited_source_is_of_the_same_kernel(self):
        self.generic()
        self.template = self.write("copy.cu", PLAIN.replace(" = 1;", " = 2;"))
        self.generic()
        told = self.last()
        self.assertTrue(told["same_kernel"])
        self.assertIn("source", [each["what"] for each in told["texts"]])

    def test_a_failed_compile_is_the_newest_one_too(self):
        self.generic()
        self.template = self.write("copy.cu", PLAIN.replace(" = 1;", " = one;"))
        self.compile(1, 16, status=1)
        self.assertEqual(self.last()["b"]["kind"], "failure")
        text = self.run_command("explain", "--last").out
        self.assertRegex(text, r"\n   failed \d.*, after \d+")
        # Why, and where all of it is; and nothing of two that were compiled.
        self.assertRegex(text, r"\n   .*error: identifier \"one\" is undefined\n"
                               r"   jitcache show --kind failure [0-9a-f]{12} has all of it\n")
        # Two have failed, side by side: which is the newest, so what it is nearest to, is open.
        self.assertRegex(text, r"(?m)^\d things? differs?, so each had its own compile:$")
        hint = re.search(r"jitcache (show .*) has all", text)[1].split()
        self.assertIn("identifier", self.run_command(*hint).out)

    def test_a_value_is_told_as_it_is(self):
        self.template = self.write("copy.cu", TEMPLATE)
        self.generic()
        self.compile(4096, 5)
        self.compile(4097, 5)
        self.assertIn("B is for calls where n is 4097, A where it is 4096.",
                      self.run_command("explain", "--last").out)

    def test_thousands_of_records_take_no_seconds(self):
        self.fill("many", 5000)
        begin = time.monotonic()
        told = self.last()
        self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual(told["last"]["compared"], 2048)
        self.assertGreaterEqual(told["last"]["older"], 5000)
        self.assertTrue(told["same_kernel"])

    def test_a_cache_without_compiles_is_told(self):
        self.assertIn("nothing was compiled into this cache yet",
                      self.complaint("explain", "--last"))
        self.assertFalse(self.cache.exists())

    def test_wrong_use_is_told(self):
        for words, wanted in [(["--last", "abcd"], "--last finds both records itself"),
                              (["--kernel", "copy"], "--kernel goes with --last"),
                              (["--kernel", "copy", "abcd", "abce"], "--kernel goes with --last"),
                              (["--lats"], "did you mean --last")]:
            self.assertIn(wanted, self.complaint("explain", *words))

    def test_what_is_in_a_cache_cannot_drive_the_terminal(self):
        self.fill("odd")
        done = self.run_command("explain", "--last", "--kernel", "od*")
        self.assertNotIn(b"\x1b", done.stdout)
        done = self.run_command("explain", "--last", "--kernel", "\x1b[2J", status=2)
        self.assertNotIn(b"\x1b", done.stderr)
        self.assertIn(r"of a kernel '\x1b[2J'", done.err)


if __name__ == "__main__":
    harness.main()
