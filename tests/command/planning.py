"""`plan` counts what a range of calls would compile, and says why."""
import itertools
import re
import unittest

import harness
from harness import ROPE, SILU, TEMPLATES

TOKENS = ["--range", "num_tokens=1:8192"]
MOST_TOKENS = 1048576
WITHOUT_TOKENS = ["--without", "num_tokens"]
WITHOUT_STRIDE = ["--without", "scale_stride_k"]

# The published table of the seed kernel, which has one tile for all token counts: what is ignored,
# and where its variants begin.
SEED = [
    (WITHOUT_TOKENS + WITHOUT_STRIDE, [1, 2, 13, 16]),
    (WITHOUT_STRIDE, [1, 13]),
    ([], [1]),
]

STORM = """/*jitcache
kernel: storm
parameters:
  - {name: tile, type: int, values_are: wrong}
*/
"""

WIDE = """/*jitcache
kernel: wide
arguments:
  - {name: n, type: i32, facets: [value]}
*/
#include <jitcache.cuh>
extern "C" __global__ void wide(int n) { JC_FACT(n); }
"""

HALVE = """/*jitcache
kernel: halve
arguments:
  - {name: x, type: f32*, align: either}
*/
#include <jitcache.cuh>
extern "C" __global__ void halve(float *x) { JC_FACT(x); x[threadIdx.x] /= 2; }
"""


# Of two arguments: the last case gets what the others leave.
DISPATCH = """/*jitcache
kernel: reduce
parameters:
  - name: TOKENS
    dispatch:
      - {when: num_tokens == 1, value: 1}
      - {when: num_tokens <= 64 && heads >= 32, value: 8}
      - {value: 4}
fallback: {TOKENS: 2}
arguments:
  - {name: num_tokens, type: i32, range: [1, 1048576]}
  - {name: heads, type: i32}
  - {name: width, type: i32, range: [1, 9]}
*/
extern "C" __global__ void reduce(int num_tokens, int heads, int width) {}
"""


def values_of(calls):
    """The values that the runs of one argument hold."""
    return [value for first, last in calls["runs"] for value in range(first, last + 1)]


def rows_of(text):
    """The cells of the table of variants."""
    table = re.search(r"^ +#  .*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL).group()
    return [re.split(r"  +", line.strip()) for line in table.splitlines()]


class Planning(harness.Case):
    def one_tile(self):
        """The seed kernel with that of its generic variant for all calls, as words."""
        plan = self.json("plan", ROPE)
        fallback = plan["list"][-1]["parameters"]
        dispatched = [each["name"] for each in plan["causes"] if each["facet"] == "dispatch"]
        self.assertTrue(dispatched)
        return [ROPE] + [word for name in dispatched
                         for word in ("--param", f"{name}={fallback[name]}")]

    def test_the_seed_kernel_has_its_published_table(self):
        seed = self.one_tile()
        for scale_format in ["fp32", "ue8m0"]:
            for without, first in SEED:
                plan = self.json("plan", *seed, *TOKENS, *without, "--param",
                                 f"scale_format={scale_format}")
                self.assertEqual(plan["variants"], len(first))
                reached = plan["list"][:plan["variants"]]
                if len(first) > 1:
                    self.assertEqual([each["first"]["num_tokens"] for each in reached], first)
                for each in reached:
                    self.assertEqual(each["parameters"]["scale_format"], scale_format)

    def test_the_values_that_nobody_gave_are_told(self):
        heading = "Of calls with the template's typical values; --range takes others:"
        text = self.run_command("plan", ROPE).out
        self.assertIn(f"\n\n{heading}\n  heads=64, o_stride_token=32768, o_stride_head=512\n\n",
                      text)
        self.assertEqual(self.json("plan", ROPE)["typical"],
                         {"heads": 64, "o_stride_token": 32768, "o_stride_head": 512})
        given = ["--range", "heads=128", "--range", "o_stride_head=1:512"]
        text = self.run_command("plan", ROPE, *given).out
        self.assertIn(f"\n{heading}\n  o_stride_token=32768\n", text)
        given += ["--range", "o_stride_token=65536"]
        self.assertNotIn("typical", self.run_command("plan", ROPE, *given).out)
        self.assertEqual(self.json("plan", ROPE, *given)["typical"], {})
        self.assertNotIn("typical", self.run_command("plan", ROPE, "--generic").out)
        self.assertEqual(self.json("plan", ROPE, "--generic")["typical"], {})

    def test_the_generic_variant_alone_needs_no_ranges(self):
        path = self.write("wide.cu", WIDE)
        self.assertIn("--range n=LO:HI", self.complaint("plan", path))
        plan = self.json("plan", path, "--generic")
        self.assertEqual((plan["variants"], plan["generic"], plan["causes"]), (0, 1, []))
        self.assertEqual([(each["specialization"], each["generic"], each["first"], each["calls"])
                          for each in plan["list"]], [("", True, {}, {})])
        text = self.run_command("plan", path, "--generic").out
        self.assertTrue(text.startswith("wide: 1 generic variant, and none for its calls\n"), text)
        self.assertNotIn("Common to all", text)
        self.assertEqual(rows_of(text), [["#", "CALLS", "KNOWS"],
                                         ["1", "no call", "no facets (the generic one)"]])
        text = self.run_command("plan", ROPE, "--generic", "--param",
                                "scale_format=fp32,ue8m0").out
        self.assertIn(": 2 generic variants, and none for its calls\n", text)

    def test_json_has_the_documented_names(self):
        plan = self.json("plan", ROPE, *TOKENS, *WITHOUT_TOKENS, *WITHOUT_STRIDE)
        self.assertEqual(set(plan), {"kernel", "file", "variants", "generic", "typical", "list",
                                     "causes"})
        self.assertEqual(plan["kernel"], "fused_inv_rope_fp8_quant")
        self.assertEqual(plan["file"], ROPE)
        self.assertIs(type(plan["variants"]), int)
        self.assertIs(type(plan["generic"]), int)
        self.assertEqual(len(plan["list"]), plan["variants"] + plan["generic"])
        for each in plan["list"]:
            self.assertEqual(set(each),
                             {"specialization", "generic", "parameters", "facets", "first",
                              "calls"})
            for calls in each["calls"].values():
                self.assertEqual(set(calls), {"smallest", "largest", "count", "total_runs", "runs",
                                              "tied"})
        for each in plan["causes"]:
            self.assertEqual(set(each), {"name", "facet", "states", "source", "left_without"})

    def test_the_specialization_text_says_the_same_as_its_objects(self):
        for each in self.json("plan", ROPE, *TOKENS, *WITHOUT_TOKENS)["list"]:
            text = "".join(f"{kind}.{name}={value}\n"
                           for kind, pairs in [("parameter", each["parameters"]),
                                               ("facet", each["facets"])]
                           for name, value in pairs.items())
            self.assertEqual(each["specialization"], text)

    def test_a_cause_says_what_its_annotation_would_leave(self):
        words = ["plan", *self.one_tile(), *TOKENS, *WITHOUT_STRIDE]
        causes = self.json(*words)["causes"]
        left = {each["name"]: each["left_without"] for each in causes}
        self.assertEqual(left.get("scale_stride_k"), 1)
        text = self.run_command(*words).out
        self.assertRegex(text, r"do_not_specialize: true on scale_stride_k leaves 1\b")

    def test_the_table_names_each_variant_and_the_calls_that_reach_it(self):
        text = self.run_command("plan", *self.one_tile(), *TOKENS, *WITHOUT_TOKENS,
                                *WITHOUT_STRIDE).out
        self.assertTrue(text.startswith("fused_inv_rope_fp8_quant: 4 variants"), text)
        self.assertEqual([row[:2] for row in rows_of(text)], [
            ["#", "num_tokens"],
            ["1", "1"],
            ["2", "2..12, 17..28, ... 8188 (6143 values)"],
            ["3", "13..15, 29..31, ... 8191 (1536 values)"],
            ["4", "16, 32, ... 8192 (512 values)"],
            ["5", "no call"],
        ])
        self.assertRegex(text, r"(?m)^ +scale_stride_k .* num_tokens$")

    def test_each_token_count_of_the_seed_kernel_has_one_variant(self):
        plan = self.json("plan", *self.one_tile(), *TOKENS, *WITHOUT_TOKENS, *WITHOUT_STRIDE)
        calls = [each["calls"]["num_tokens"] for each in plan["list"][:plan["variants"]]]
        self.assertEqual(sum(each["count"] for each in calls), 8192)
        self.assertEqual([each["total_runs"] for each in calls], [1, 512, 512, 512])
        self.assertEqual([len(each["runs"]) for each in calls], [1, 64, 64, 64])
        self.assertEqual([each["largest"] for each in calls], [1, 8188, 8191, 8192])
        # Of the first 64 runs of each: all token counts up to there, and none twice.
        values = sorted(value for each in calls for value in values_of(each))
        self.assertEqual(values, list(range(1, 1025)))

    def test_every_call_of_one_variant_is_told_by_the_range(self):
        rows = rows_of(self.run_command("plan", *self.one_tile()).out)
        self.assertEqual(rows[1][:2], ["1", "1..1048576"])

    def test_shipped_templates_have_few_variants_and_one_for_each_token_count(self):
        widths = {"heads": [1, 8, 64, 128, 160], "hidden": [128, 2048, 8192]}
        templates = sorted(TEMPLATES.glob("*.cu"))
        self.assertEqual([str(path) for path in templates], [ROPE, SILU])
        for path, (width, values) in zip(templates, widths.items()):
            for value, scale_format in itertools.product(values, ["fp32", "ue8m0"]):
                with self.subTest(file=path.name, width=value, scale_format=scale_format):
                    self.expect_few(path, "--range", f"{width}={value}", "--param",
                                    f"scale_format={scale_format}")

    def expect_few(self, path, *words):
        plan = self.json("plan", path, "--range", f"num_tokens=1:{MOST_TOKENS}", *words)
        self.assertLessEqual(plan["variants"], 4)
        self.assertLessEqual(plan["generic"], 1)
        self.assertEqual([each["facet"] for each in plan["causes"]],
                         ["dispatch"] * len(plan["causes"]))
        runs = []
        for each in plan["list"][:plan["variants"]]:
            calls = each["calls"]["num_tokens"]
            self.assertEqual((calls["total_runs"], calls["tied"]), (len(calls["runs"]), False))
            self.assertEqual(calls["count"], sum(last - first + 1
                                                 for first, last in calls["runs"]))
            runs += calls["runs"]
        end = 0
        for first, last in sorted(runs):
            self.assertEqual(first, end + 1)
            end = last
        self.assertEqual(end, MOST_TOKENS)

    def test_arguments_of_which_any_value_will_do_have_no_column(self):
        path = self.write("reduce.cu", DISPATCH)
        rows = rows_of(self.run_command("plan", path, "--range", "heads=64").out)
        self.assertEqual(rows, [
            ["#", "num_tokens", "KNOWS"],
            ["1", "1", "TOKENS=1"],
            ["2", "2..64", "TOKENS=8"],
            ["3", "65..1048576", "TOKENS=4"],
            ["4", "no call", "TOKENS=2, no facets (the generic one)"],
        ])
        rows = rows_of(self.run_command("plan", path, "--range", "heads=64", "--param",
                                        "TOKENS=4").out)
        self.assertEqual(rows[:2], [["#", "CALLS", "KNOWS"], ["1", "every call",
                                    "only what is common (the generic one)"]])

    def test_a_variant_that_gets_what_others_leave_has_a_star(self):
        path = self.write("reduce.cu", DISPATCH)
        narrow = ["--range", "heads=30:36", "--range", "num_tokens=1:100"]
        text = self.run_command("plan", path, *narrow).out
        self.assertEqual(rows_of(text), [
            ["#", "num_tokens", "heads", "KNOWS"],
            ["1", "1", "30..36", "TOKENS=1"],
            ["2", "2..100 *", "30..36 *", "TOKENS=4"],
            ["3", "2..64", "32..36", "TOKENS=8"],
            ["4", "no call", "-", "TOKENS=2, no facets (the generic one)"],
            ["* not every combination of these values: others reach another variant"],
        ])
        listed = self.json("plan", path, *narrow)["list"]
        self.assertEqual([[calls["tied"] for calls in each["calls"].values()] for each in listed],
                         [[False] * 3, [True, True, False], [False] * 3, []])
        self.assertEqual(listed[1]["calls"]["num_tokens"],
                         {"smallest": 2, "largest": 100, "count": 99, "total_runs": 1,
                          "runs": [[2, 100]], "tied": True})
        alone = self.run_command("plan", path, "--range", "heads=64").out
        self.assertNotIn("*", alone)

    def test_what_is_not_known_of_tied_arguments_is_not_told(self):
        # 2^22 values of n times 128 variants are too many to tell which is which.
        path = self.write("halves.cu", WIDE.replace(
            "arguments:", "arguments:\n"
            "  - {name: m, type: i32, range: [0, 4194303], do_not_specialize: true}\n"
            "  - {name: k, type: i32, range: [0, 1], do_not_specialize: true}").replace(
            "type: i32, facets", "type: i32, derive: m / 65536 * 2 + (m + k) % 2, facets"))
        rows = rows_of(self.run_command("plan", path).out)
        # Between 0 and 1 there is nothing that is not known.
        self.assertEqual(rows[1][:3], ["1", "within 0..65535 *", "0..1 *"])
        calls = self.json("plan", path)["list"][1]["calls"]["m"]
        self.assertEqual(calls, {"smallest": 0, "largest": 65535, "count": None,
                                 "total_runs": None, "runs": [], "tied": True})
        calls = self.json("plan", path)["list"][1]["calls"]["k"]
        self.assertEqual((calls["count"], calls["total_runs"], calls["runs"]), (2, 1, [[0, 1]]))

    def test_a_pointer_that_comes_either_way_is_planned_both_ways(self):
        either = self.write("halve.cu", HALVE)
        text = self.run_command("plan", either).out
        self.assertEqual(rows_of(text), [
            ["#", "x", "KNOWS"],
            ["1", "aligned", "x: align:16"],
            ["2", "unaligned", "only what is common (the generic one)"],
        ])
        self.assertRegex(text, r"do_not_specialize: true on x leaves 1\b")
        two = self.write("halve.cu", HALVE.replace(
            "either", "either, facets: [{align: 32}, {align: 4}]"))
        text = self.run_command("plan", two).out
        self.assertEqual(rows_of(text)[2], ["2", "aligned to 4", "x: align:4"])
        firsts = [each["first"] for each in self.json("plan", two)["list"]]
        self.assertEqual(firsts, [{"x": 0}, {"x": 1}, {"x": 2}])

    def test_several_values_of_a_parameter_are_planned_together(self):
        one = self.json("plan", SILU, *TOKENS)
        both = self.json("plan", SILU, *TOKENS, "--param", "scale_format=fp32,ue8m0")
        self.assertEqual(both["variants"], 2 * one["variants"])
        self.assertEqual(both["generic"], 2 * one["generic"])

    def test_a_long_table_is_cut_unless_all_is_asked_for(self):
        wide = self.write("wide.cu", WIDE)
        text = self.run_command("plan", wide, "--range", "n=1:100").out
        self.assertIn("wide: 100 variants", text)
        self.assertIn("more; --all shows them", text)
        whole = self.run_command("plan", wide, "--range", "n=1:100", "--all").out
        self.assertEqual([row[1] for row in rows_of(whole)[1:]],
                         [str(n) for n in range(1, 101)] + ["no call"])
        self.assertEqual(self.json("plan", wide, "--range", "n=1:100")["variants"], 100)

    def test_the_reached_variant_that_is_the_generic_one_is_marked(self):
        wide = self.write("wide.cu", WIDE.replace("facets: [value]", "range: [1, 20]"))
        text = self.run_command("plan", wide).out
        self.assertEqual(rows_of(text)[2],
                         ["2", "2..15, 17..20", "only what is common (the generic one)"])
        self.assertEqual(text.count("(the generic one)"), 1)

    def test_facets_that_nothing_reads_are_told(self):
        words = "Nothing reads the facets of n: JC_FACT(n) does not occur in the source."
        declared = self.write("wide.cu", WIDE.replace("JC_FACT(n);", ""))
        self.assertIn(words, self.run_command("plan", declared).out)
        self.assertNotIn("Nothing reads", self.run_command(
            "plan", self.write("wide.cu", WIDE), "--range", "n=1:2").out)
        # An unmodified kernel has but one line more, and only its annotation silences that.
        default = WIDE.replace("JC_FACT(n);", "").replace(", facets: [value]", "")
        path = self.write("wide.cu", default)
        text = self.run_command("plan", path).out
        self.assertIn("\nNothing reads the default facets of 1 argument; -v names it.\n", text)
        self.assertNotIn(words, text)
        self.assertIn(words, self.run_command("plan", path, "-v").out)
        path = self.write("wide.cu", default.replace("i32", "i32, do_not_specialize: true"))
        self.assertNotIn("Nothing reads", self.run_command("plan", path, "-v").out)

    def test_without_an_annotation_there_is_nothing_to_leave_out(self):
        wide = self.write("wide.cu", WIDE)
        done = self.run_command("plan", wide, "--range", "n=1:2", "--without", "n",
                                remark="jitcache: note: --without n changes nothing: ")
        self.assertEqual(len(done.err.splitlines()), 1)

    def test_a_template_that_does_not_read_is_told_with_file_and_line(self):
        path = self.write("storm.cu", STORM)
        self.assertIn(f"{path}:4", self.complaint("plan", path))

    def test_planning_touches_no_cache(self):
        self.run_command("plan", ROPE)
        self.assertFalse(self.cache.exists())


if __name__ == "__main__":
    harness.main()
