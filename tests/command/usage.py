"""Wrong use is told in one message that says what to write, and help teaches."""
import re
import shlex
import unittest

import harness
from harness import ROPE, SILU

COMMANDS = ["prewarm", "plan", "lint", "stats", "ls", "show", "explain", "clear", "doctor",
            "completion", "report"]

# Words, and what the message must hold.
WRONG = [
    ([], "no command given"),
    (["--josn"], "a command comes first"),
    (["prewram"], "did you mean 'prewarm'"),
    (["frobnicate"], "unknown command 'frobnicate'"),
    (["help", "lss"], "did you mean 'ls'"),
    (["help", "ls", "plan"], "one command"),
    (["plan"], "FILE is missing"),
    (["plan", ROPE, SILU], "one FILE at a time"),
    (["plan", ROPE, "--parm", "a=1"], "did you mean --param"),
    (["plan", ROPE, "--rnage=a=1"], "did you mean --range"),
    (["plan", ROPE, "--zzzzzz"], "unknown option --zzzzzz"),
    (["plan", ROPE, "-z"], "unknown option -z"),
    (["plan", ROPE, "--param"], "--param needs a value"),
    (["plan", ROPE, "--all=1"], "--all takes no value"),
    (["plan", ROPE, "--param", "heads_per_group"], "NAME=VALUE"),
    (["plan", ROPE, "--param", "=8"], "NAME=VALUE"),
    (["plan", ROPE, "--range", "num_tokens"], "NAME=LO:HI or NAME=VALUE"),
    (["plan", ROPE, "--range", "num_tokens=1,8"], "write LO:HI, both included, or one value"),
    (["plan", ROPE, "--range", "num_tokens=1:8192:128"], "write LO:HI"),
    (["plan", ROPE, "--range", "num_tokens=1-8192"], "write LO:HI"),
    (["plan", ROPE, "--param", "heads_per_group="], "NAME=VALUE"),
    (["plan", ROPE, "--range", "num_tokens=1:2", "--range", "num_tokens=1:3"], "given twice"),
    (["plan", ROPE, "--param", "scale_fromat=fp32"], "did you mean scale_format"),
    (["plan", ROPE, "--param", "num_tokens=1"], "--range"),
    (["plan", ROPE, "--range", "scale_format=fp32"], "--param"),
    (["plan", ROPE, "--range", "nmu_tokens=1:2"], "did you mean num_tokens"),
    (["plan", ROPE, "--without", "zebra"], "no template given has an argument"),
    (["plan", ROPE, "--param", "scale_format=fp64"], "fp32"),
    (["plan", ROPE, "--range", "num_tokens=9:1"], "num_tokens"),
    (["plan", ROPE, "--range", "num_tokens=a:b"], "num_tokens"),
    (["plan", "no/such/file.cu"], "no/such/file.cu"),
    (["prewarm", "--arch", "sm_90a"], "FILE is missing"),
    (["prewarm", ROPE], "--arch sm_90a"),
    (["prewarm", ROPE, SILU, "--arch", "sm_90a", "--param", "nobody=1"], "nobody"),
    (["prewarm", SILU, "--arch", "sm_90a", "-j"], "--jobs needs a value"),
    (["prewarm", SILU, "--arch", "sm_90a", "-j", "-1"], "from 1 to 65535, or 0"),
    (["prewarm", SILU, "--arch", "sm_90a", "-j", ""], "from 1 to 65535, or 0"),
    (["prewarm", SILU, "--arch", "sm_90a", "-j4x"], "not '4x'"),
    (["prewarm", SILU, "--arch", "sm_90a", "--jobs=65536"], "not '65536'"),
    (["prewarm", SILU, "--arch", "sm_90a", "--jobs", "99999999999999999999"], "from 1 to"),
    (["prewarm", SILU, "--arch", "sm_90a", "--timeout", "0"], "--timeout wants the seconds"),
    (["prewarm", SILU, "--arch", "sm_90a", "--timeout", "-3"], "--timeout wants the seconds"),
    (["prewarm", SILU, "--arch", "sm_90a", "--timeout", "1m"], "not '1m'"),
    (["prewarm", SILU, "--arch", "sm_90a", "--timeout", "1e3"], "not '1e3'"),
    (["prewarm", SILU, "--arch", "sm_90a", "--timeout", "nan"], "not 'nan'"),
    (["prewarm", SILU, "--arch", "sm_90a", "--timeout", "20000000000"], "such as 300 or 0.5, not"),
    (["prewarm", SILU, "--arch", "sm_90a", "--timeout", "."], "--timeout wants the seconds"),
    (["prewarm", SILU, "--arch", "sm_90a", "--key", "abc"], "at least 4 digits"),
    (["prewarm", SILU, "--arch", "sm_90a", "--key", "abcx"], "32 hexadecimal digits"),
    (["prewarm", SILU, "--arch", "sm_90a", "--key", "a" * 33], "32 hexadecimal digits"),
    (["prewarm", SILU, "--from-cache"], "--from-cache takes no FILE"),
    (["prewarm", "--from-cache", "--range", "n=1:2"], "are for FILEs"),
    (["prewarm", "--from-cache", "--generic"], "are for FILEs"),
    (["prewarm", "--from-cache", "--template-dir", "."], "are for FILEs"),
    (["prewarm", SILU, "--arch", "9.0", "--source", "x"], "--source wants the 32 hexadecimal"),
    (["prewarm", SILU, "--arch", "9.0", "--template-dir", "/none"], "there is no such folder"),
    (["plan", ROPE, "--generic", "--range", "num_tokens=1:8"], "which no --range changes"),
    (["plan", ROPE, "--generic", "--without", "scale_stride_k"], "which no --without changes"),
    (["plan", ROPE, "--generic=1"], "--generic takes no value"),
    (["lint", ROPE, "--generic"], "unknown option --generic"),
    (["prewarm", "--form-cache"], "did you mean --from-cache"),
    (["lint"], "FILE is missing"),
    (["lint", ROPE, "--max-variants", "0"], "a number from 1 on"),
    (["lint", ROPE, "--max-variants", "-1"], "a number from 1 on"),
    (["lint", ROPE, "--param", "scale_fromat=fp32"], "did you mean scale_format"),
    (["lint", ROPE, "--range", "num_tokens=9:1"], "num_tokens"),
    (["lint", "no/such/file.cu"], "no/such/file.cu"),
    (["stats", "now"], "takes no 'now'"),
    (["ls", "silu"], "--kernel 'silu'"),
    (["ls", "--kind", "cubin"], "none of variant, failure"),
    (["show"], "a KEY is missing"),
    (["show", "abc"], "too short"),
    (["show", "abcx"], "no key"),
    (["show", "a" * 33], "no key"),
    (["show", "abcd", "abce"], "one KEY at a time"),
    (["show", "abcd", "--cubin"], "needs -o"),
    (["show", "abcd", "-o", "file"], "goes with --cubin"),
    (["show", "abcd", "--source", "--key"], "at a time"),
    (["show", "abcd", "--cubin", "-o", "-", "--json"], "both want standard output"),
    (["explain"], "two KEYs"),
    (["explain", "abcd"], "two KEYs"),
    (["explain", "abcd", "abce", "abcf"], "two KEYs at a time"),
    (["explain", "abcd", "abc"], "too short"),
    (["explain", "abcx", "abcd"], "no key"),
    (["clear"], "add --yes"),
    (["clear", "silu", "--yes"], "takes no 'silu'"),
]


class Usage(harness.Case):
    def test_wrong_use_is_told_in_one_message(self):
        for words, wanted in WRONG:
            with self.subTest(words=words):
                self.assertIn(wanted, self.complaint(*words))
        self.assertFalse(self.cache.exists(), "wrong use made a cache folder")

    def test_every_bad_template_is_told_before_anything_is_compiled(self):
        bad = self.write("bad.cu", "/*jitcache\nkernal: x\n*/\n")
        worse = self.write("worse.cu", "")
        done = self.run_command("prewarm", bad, worse, SILU, "--arch", "sm_90a", status=2)
        self.assertIn("bad.cu:2", done.err)
        self.assertIn("worse.cu", done.err)
        self.assertFalse(self.cache.exists())

    def test_help_names_the_usage_options_examples_and_statuses(self):
        for command in COMMANDS:
            text = self.run_command(command, "--help").out
            self.assertEqual(text, self.run_command("help", command).out)
            self.assertEqual(text, self.run_command(command, "-h", "ignored").out)
            for part in [f"Usage: jitcache {command} ", "\nOptions:\n", "  --dir DIR",
                         "\nExamples:\n", "\nExit status:\n  0"]:
                self.assertIn(part, text)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, line)
        text = self.run_command("prewarm", "--help").out
        self.assertIn("\n       jitcache prewarm [OPTION]... MANIFEST...\n", text)
        self.assertIn("\n  128 + number\n       ended by that signal, so 130 after", text)
        overview = self.run_command("--help").out
        self.assertEqual(overview, self.run_command("help").out)
        for command in COMMANDS:
            self.assertRegex(overview, rf"\n  {command} +\w")

    def test_the_version_is_one_line(self):
        self.assertRegex(self.run_command("--version").out, r"\Ajitcache \d+\.\d+\.\d+\n\Z")

    def test_the_examples_of_plan_lint_stats_and_ls_work_as_they_stand(self):
        for command in ["plan", "lint", "stats", "ls"]:
            text = self.run_command(command, "--help").out
            examples = re.search(r"Examples:\n(.*?)\n\n", text, re.DOTALL)[1]
            lines = re.sub(r"\\\n", " ", examples).splitlines()
            self.assertGreaterEqual(len(lines), 2)
            for line in lines:
                words = shlex.split(line)
                self.assertEqual(words[:2], ["jitcache", command])
                self.run_command(*words[1:], cwd=harness.ROOT)


if __name__ == "__main__":
    harness.main()
