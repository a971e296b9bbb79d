"""`lint` tells what is wrong with templates that compile all the same."""
import re
import unittest

import harness
from harness import ROPE, SILU

NAMES = {"kind", "severity", "file", "line", "subject", "message"}

UNREAD = """/*jitcache
kernel: unread
arguments:
  - {name: x, type: f32*}
  - {name: n, type: i32, facets: [value], range: [1, 64]}
launch: {grid: ["ceildiv(n, 32)"], block: [32]}
*/
extern "C" __global__ void unread(float *x, int n) { x[0] = n; }
"""

STATE = """/*jitcache
kernel: state
arguments:
  - {name: x, type: f32*, facets: []}
launch: {grid: [1], block: [32]}
*/
__device__ int calls;
extern "C" __global__ void state(float *x) { x[0] = calls++; }
"""

MANY = """/*jitcache
kernel: many
arguments:
  - {name: x, type: f32*, facets: []}
  - {name: n, type: i32, facets: [value], range: [1, 64]}
launch: {grid: [1], block: [32]}
*/
#include <jitcache.cuh>
extern "C" __global__ void many(float *x, int n) { JC_FACT(n); x[0] = n; }
"""


class Lint(harness.Case):
    def findings(self, *words):
        """What it finds, from the JSON; the status has to fit."""
        done = self.json("lint", *words, status=1)
        self.assertEqual(set(done), {"findings"})
        for each in done["findings"]:
            self.assertEqual(set(each), NAMES)
            self.assertIn(each["severity"], ["error", "warning"])
        self.assertTrue(done["findings"])
        return done["findings"]

    def test_the_templates_that_ship_are_clean(self):
        self.assertEqual(self.run_command("lint", ROPE, SILU).out, "nothing found\n")
        self.assertEqual(self.json("lint", ROPE, SILU), {"findings": []})

    def test_a_finding_is_a_line_that_names_file_and_line(self):
        path = self.write("unread.cu", UNREAD)
        lines = self.run_command("lint", path, status=1).out.splitlines()
        found = [line for line in lines if line.endswith(" [unread-facet]")]
        self.assertEqual(len(found), 1, lines)
        self.assertRegex(found[0], rf"\A{re.escape(path)}:5: warning: n: .*JC_FACT\(n\)")

    def test_json_tells_the_same_as_the_lines(self):
        path = self.write("unread.cu", UNREAD)
        lines = self.run_command("lint", path, status=1).out.splitlines()
        self.assertEqual([f"{each['file']}:{each['line']}: {each['severity']}: {each['subject']}:"
                          f" {each['message']} [{each['kind']}]"
                          for each in self.findings(path)], lines)

    def test_mutable_state_names_the_variable(self):
        path = self.write("state.cu", STATE)
        self.assertEqual([(each["kind"], each["subject"], each["line"])
                          for each in self.findings(path)], [("mutable-state", "calls", 7)])

    def test_max_variants_and_ranges_decide_what_is_many(self):
        path = self.write("many.cu", MANY)
        self.assertEqual([each["kind"] for each in self.findings(path)], ["many-values"])
        heads = self.write("heads.cu", MANY.replace("facets: [value]", "facets: [one, {div: 2}, "
                                                    "{div: 4}, {div: 8}, {div: 16}]"))
        self.assertEqual([each["kind"] for each in self.findings(heads, "--max-variants", "5")],
                         ["many-variants"])
        self.run_command("lint", path, "--max-variants", "64")
        self.run_command("lint", path, "--range", "n=1:16")
        self.findings(path, "--range", "n=1:16", "--max-variants", "15")

    def test_each_template_takes_the_names_that_it_has(self):
        many, state = self.write("many.cu", MANY), self.write("state.cu", STATE)
        found = self.findings(many, state, "--range", "n=1:2")
        self.assertEqual([each["file"] for each in found], [state])

    def test_a_template_that_does_not_read_is_told_as_plan_tells_it(self):
        path = self.write("bad.cu", "/*jitcache\nkernal: x\n*/\n")
        self.assertEqual(self.complaint("lint", path), self.complaint("plan", path))

    def test_what_a_template_says_cannot_drive_the_terminal(self):
        (self.folder / "st\x1b[31mate").mkdir()
        path = self.write("st\x1b[31mate/state.cu", STATE)
        done = self.run_command("lint", path, status=1)
        self.assertNotIn(b"\x1b", done.stdout)
        self.assertIn(r"/st\x1b[31mate/state.cu:7:", done.out)


if __name__ == "__main__":
    harness.main()
