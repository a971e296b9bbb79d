"""`explain` says what makes two records differ, on what the real compiler made."""
import subprocess
import unittest

import harness

NAMES = {"what", "name", "a", "b", "meaning"}

TEMPLATE = """/*jitcache
kernel: copy
parameters:
  - {name: width, type: int, default: 1}
arguments:
  - {name: to, type: f32*}
  - {name: n, type: i32}
  - {name: stride, type: i64}
launch: {grid: [1, 1, 1], block: [1, 1, 1]}
*/
#include <jitcache.cuh>
#include "step.cuh"
extern "C" __global__ void copy(float *to, int n, long long stride)
{
    JC_FACT(n);
    JC_FACT(stride);
    to[n * stride] = STEP + JC_PARAM_width;
}
"""


class Explain(harness.Case):
    def setUp(self):
        super().setUp()
        self.write("step.cuh", "#define STEP 1\n")
        self.template = self.write("copy.cu", TEMPLATE)

    def compile(self, *words, n="n=3", stride="stride=5", arch="sm_90a"):
        """Makes variants; the keys of those that are new, without the generic ones."""
        before = self.keys()
        self.run_command("prewarm", self.template, "--arch", arch, "--range", n, "--range",
                         stride, *words)
        return sorted(self.keys() - before - self.generic_keys())

    def keys(self, kind="variant"):
        return {each["key"] for each in self.json("ls", "--kind", kind)["records"]}

    def generic_keys(self):
        return {key for key in self.keys()
                if not any(line.startswith("facet.")
                           for line in self.json("show", key)["key_lines"])}

    def only(self, keys):
        self.assertEqual(len(keys), 1, keys)
        return keys[0]

    def explain(self, a, b):
        """The one difference of two records, from the JSON."""
        told = self.json("explain", a, b)
        self.assertEqual(set(told), {"a", "b", "same", "same_kernel", "differences", "texts"})
        for each in told["differences"]:
            self.assertEqual(set(each), NAMES)
        self.assertEqual(len(told["differences"]) + len(told["texts"]), 1, told)
        return (told["differences"] or told["texts"])[0]

    def test_a_facet_that_only_one_knows_names_its_annotation(self):
        a = self.only(self.compile(n="n=1", stride="stride=16"))
        b = self.only(self.compile(n="n=1", stride="stride=5"))
        told = self.explain(a, b)
        self.assertEqual((told["what"], told["name"], told["a"], told["b"]),
                         ("facet", "stride", "div:16", None))
        self.assertIn("do_not_specialize: alignment on stride", told["meaning"])
        text = self.run_command("explain", a[:10], b[:10].upper()).out
        self.assertIn("stride: div:16 in A, nothing known in B", text)
        self.assertIn("1 thing differs, so both were compiled", text)
        self.assertIn("With that annotation both calls would have used one variant.", text)
        self.assertTrue(text.startswith(f"A  {a}  variant  copy  sm_90a\nB  {b}  "), text)

    def test_what_may_be_the_generic_variant_is_called_so(self):
        a = self.only(self.compile(n="n=1"))
        b = self.only(self.compile(n="n=16"))
        generic = self.only(sorted(self.generic_keys()))
        words = "knows no facts: it may be the generic variant, which every kernel has."
        self.assertIn(f"\nB {words}\n", self.run_command("explain", a, generic).out)
        self.assertIn(f"\nA {words}\n", self.run_command("explain", generic, b).out)
        self.assertNotIn(words, self.run_command("explain", a, b).out)

    def test_being_one_is_no_matter_of_alignment(self):
        a = self.only(self.compile(n="n=1", stride="stride=1"))
        b = self.only(self.compile(n="n=1", stride="stride=16"))
        told = self.explain(a, b)
        self.assertEqual((told["a"], told["b"]), ("one", "div:16"))
        self.assertIn("do_not_specialize: true on stride", told["meaning"])

    def test_with_another_cause_the_annotation_alone_would_not_have_done(self):
        a = self.only(self.compile(n="n=16"))
        b = self.only(self.compile("--param", "width=2", n="n=1"))
        text = self.run_command("explain", a, b).out
        self.assertIn("n: div:16 in A, one in B", text)
        self.assertIn("width: 1 in A, 2 in B", text)
        self.assertIn("2 things differ", text)
        self.assertNotIn("would have used one variant", text)

    def test_parameter_and_architecture_are_told(self):
        a = self.only(self.compile(n="n=1"))
        b = self.only(self.compile("--param", "width=2", n="n=1"))
        c = self.only(self.compile(n="n=1", arch="sm_80"))
        told = self.explain(a, b)
        self.assertEqual((told["what"], told["name"], told["a"], told["b"]),
                         ("parameter", "width", "1", "2"))
        told = self.explain(a, c)
        self.assertEqual((told["what"], told["name"], told["a"], told["b"]),
                         ("architecture", "", "sm_90a", "sm_80"))

    def test_an_edited_header_is_told_apart_from_an_edited_source(self):
        a = self.only(self.compile(n="n=1"))
        self.write("step.cuh", "#define STEP 2\n")
        b = self.only(self.compile(n="n=1"))
        self.assertEqual(self.explain(a, b)["what"], "headers")
        self.assertIn("an included file differs", self.run_command("explain", a, b).out)

    def test_an_edited_source_shows_the_lines_as_diff_does(self):
        a = self.only(self.compile(n="n=1"))
        edited = TEMPLATE.replace("    JC_FACT(n);\n", "    // first\n    // second\n"
                                  "    JC_FACT(n);\n").replace("STEP +", "STEP -")
        self.write("copy.cu", edited)
        b = self.only(self.compile(n="n=1"))
        text = self.run_command("explain", a, b).out
        old, new = self.write("old", TEMPLATE), self.write("new", edited)
        diff = subprocess.run(["diff", "-U0", old, new], stdout=subprocess.PIPE, text=True).stdout
        shown = [line[4:] for line in text.splitlines() if line[:5] in ("    @", "    -", "    +")]
        expected = [self.counted(line) for line in diff.splitlines()[2:]]
        self.assertEqual(shown, expected)
        self.assertIn("lines only in A: 1, only in B: 3", text)
        told = self.explain(a, b)
        self.assertEqual((told["what"], told["complete"]), ("source", True))
        self.assertEqual([len(hunk["b"]) for hunk in told["hunks"]], [2, 1])
        self.assertEqual(told["hunks"][0]["b"], ["    // first", "    // second"])

    @staticmethod
    def counted(line):
        """A line of diff with every count written out."""
        if not line.startswith("@@"):
            return line
        marks, a, b, more = line.split()
        return " ".join([marks, *(each if "," in each else each + ",1" for each in (a, b)), more])

    def test_a_source_that_differs_everywhere_is_cut_short_in_bounded_time(self):
        a = self.only(self.compile(n="n=1"))
        lines = "".join(f"// {i}\n" for i in range(60000))
        self.write("copy.cu", TEMPLATE + lines)
        b = self.only(self.compile(n="n=1"))
        self.write("copy.cu", TEMPLATE + lines.replace("//", "///"))
        c = self.only(self.compile(n="n=1"))
        for first, second, count in [(a, b, 60000), (b, c, 120000)]:
            text = self.run_command("explain", first, second).out
            self.assertIn(f"... 40 lines of {count} are shown", text)
            self.assertLess(len(text.splitlines()), 60)
            self.assertFalse(self.explain(first, second)["complete"])
        self.assertIn("too many to be lined up", text)

    def test_arguments_of_another_description_are_told_by_name(self):
        a = self.only(self.compile(n="n=1"))
        self.write("copy.cu", TEMPLATE.replace("f32*", "void*").replace(
            "float *to", "void *to").replace("to[", "((float *) to)["))
        b = self.only(self.compile(n="n=1"))
        differences = self.json("explain", a, b)["differences"]  # beside the source
        self.assertEqual([(each["what"], each["name"], each["a"], each["b"])
                          for each in differences], [("argument", "to", "f32*", "void*")])

    def test_an_option_that_only_one_has_is_told(self):
        a = self.only(self.compile(n="n=1"))
        self.write("copy.cu", TEMPLATE.replace("arguments:", "options: [--use_fast_math]\n"
                                               "arguments:", 1))
        b = self.only(self.compile(n="n=1"))
        self.assertIn("--use_fast_math only in B", self.run_command("explain", a, b).out)

    def test_one_key_differs_in_nothing(self):
        key = self.only(self.compile(n="n=1"))
        told = self.json("explain", key, key)
        self.assertEqual((told["same"], told["differences"], told["texts"]), (True, [], []))
        self.assertIn("nothing differs", self.run_command("explain", key, key).out)

    def test_of_different_kernels_that_is_said_first(self):
        a = self.only(self.compile(n="n=1"))
        self.template = self.write("other.cu", TEMPLATE.replace("copy", "other"))
        b = self.only(self.compile(n="n=1"))
        self.assertFalse(self.json("explain", a, b)["same_kernel"])
        text = self.run_command("explain", a, b).out
        self.assertIn("\n\nThey are of different kernels: copy and other.\n", text)

    def test_two_templates_are_compared_too(self):
        self.compile(n="n=1")
        self.write("copy.cu", TEMPLATE.replace("STEP +", "STEP -"))
        self.compile(n="n=1")
        a, b = self.keys("template")
        told = self.json("explain", a, b)
        self.assertEqual(told["differences"], [])
        self.assertEqual([each["what"] for each in told["texts"]], ["source"])
        self.assertIn("so both were stored", self.run_command("explain", a, b).out)

    def test_a_template_and_a_variant_are_not_compared(self):
        key = self.only(self.compile(n="n=1"))
        template = self.only(list(self.keys("template")))
        self.assertIn("compares two variants, or two templates",
                      self.complaint("explain", key, template))

    def test_what_is_in_a_cache_cannot_drive_the_terminal(self):
        self.fill("odd")
        a, b = [each["key"] for each in self.json("ls", "--kind", "variant")["records"]]
        done = self.run_command("explain", a, b)
        self.assertNotIn(b"\x1b", done.stdout)


if __name__ == "__main__":
    harness.main()
