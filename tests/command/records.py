"""ls, stats, show and clear on a cache that a program of ours has filled, without a compiler."""
import collections
import unittest

import harness


class Records(harness.Case):
    def variant(self):
        return self.json("ls", "--kind", "variant", "--kernel", "plain_kernel")["records"][0]

    def test_ls_has_one_line_for_each_record(self):
        self.fill()
        heading, *lines = self.run_command("ls").out.splitlines()
        self.assertEqual(heading.split(),
                         ["KEY", "KIND", "KERNEL", "ARCH", "SIZE", "COMPILE", "AGE"])
        self.assertEqual(sorted(line.split()[1] for line in lines),
                         ["failure", "template", "variant", "variant"])
        self.assertEqual(sorted(line.split()[2] for line in lines), ["?"] + 3 * ["plain_kernel"])

    def test_ls_says_more_of_each_variant_when_asked(self):
        self.fill()
        heading, *lines = self.run_command("ls", "-v").out.splitlines()
        self.assertEqual(heading.split()[-1], "SPECIALIZATION")
        self.assertEqual(sorted((line.split()[1], line.split()[-1]) for line in lines),
                         [("failure", "n=1"), ("template", "-"), ("variant", "n=1"),
                          ("variant", "n=nobody's")])

    def test_records_of_no_kernel_are_listed_and_count_for_none(self):
        self.fill()
        before = self.json("stats")
        self.fill("kinds")
        lines = [line.split() for line in self.run_command("ls").out.splitlines()]
        for kind in ["toolchain", "coverage"]:
            record, = self.json("ls", "--kind", kind)["records"]
            self.assertEqual((record["kind"], record["kernel"]), (kind, "-"))
            self.assertIn([kind, "-"], [line[1:3] for line in lines])
            text = self.run_command("show", record["key"]).out
            self.assertRegex(text, rf"kind +{kind}\nkernel +-\n")
            self.assertIn(f"\n  jitcache-{kind}=1\n", text)
            self.assertNotIn("bytes of source", text)
        self.assertEqual(len(self.json("ls", "--kernel", "plain_kernel")["records"]), 3)
        after = self.json("stats")
        self.assertEqual([{**each, "newest_ms": 0} for each in after["kernels"]],
                         [{**each, "newest_ms": 0} for each in before["kernels"]])
        self.assertEqual(after["total"]["variants"], before["total"]["variants"])
        self.assertEqual(after["cache"]["records"], before["cache"]["records"] + 2)
        self.assertEqual(self.json("clear", "--yes")["removed"], 6)

    def test_ls_filters_by_kernel_architecture_and_kind(self):
        self.fill()
        for words, count in [(["--kernel", "plain_kernel"], 3), (["--kernel", "plain_*"], 3),
                             (["--kernel", "plain"], 0), (["--arch", "sm_90a"], 3),
                             (["--arch", "sm_90"], 3), (["--arch", "sm_80"], 0),
                             (["--kind", "failure"], 1),
                             (["--kind", "variant", "--kernel", "plain_kernel"], 1)]:
            self.assertEqual(len(self.json("ls", *words)["records"]), count, words)

    def test_json_has_the_documented_names(self):
        self.fill()
        self.assertEqual(set(self.variant()), {"key", "kind", "kernel", "arch", "bytes",
                                               "compile_seconds", "created_ms", "expires_ms"})
        stats = self.json("stats")
        self.assertEqual(set(stats), {"cache", "total", "kernels", "statistics"})
        self.assertEqual(set(stats["cache"]), {"dir", "state", "bytes", "max_bytes",
                                               "segments", "base_segments", "records"})
        names = {"variants", "failures", "texts", "archs", "bytes", "compile_seconds", "newest_ms"}
        self.assertEqual(set(stats["total"]), names)
        self.assertEqual(set(stats["kernels"][0]), names | {"kernel"})
        shown = self.json("show", self.variant()["key"])
        self.assertEqual(set(shown), {"key", "kind", "kernel", "arch", "bytes", "payload_bytes",
                                      "compile_seconds", "created_ms", "expires_ms", "segment",
                                      "metadata", "key_lines"})

    def test_stats_sums_up_each_kernel(self):
        self.fill("many", 10)
        stats = self.json("stats")
        kernels = {each["kernel"]: each for each in stats["kernels"]}
        plain = kernels["plain_kernel"]
        self.assertEqual((plain["variants"], plain["failures"], plain["texts"], plain["archs"]),
                         (11, 1, 1, ["sm_90a"]))
        self.assertAlmostEqual(plain["compile_seconds"], 11 * 0.212)
        self.assertEqual(kernels["?"]["variants"], 1)
        self.assertEqual(stats["total"]["variants"], 12)
        self.assertEqual(stats["cache"]["records"], 14)
        text = self.run_command("stats").out
        self.assertRegex(text, r"(?m)^plain_kernel +11 +1 +1 +sm_90a ")
        self.assertRegex(text, r"(?m)^in all +12 ")

    def test_stats_knows_no_compile_time_of_what_never_compiled(self):
        path = self.write("typo.cu", "/*jitcache\nkernel: typo\narguments: []\n*/\n")
        self.run_command("prewarm", path, "--arch", "sm_90a", status=1)
        self.assertRegex(self.run_command("stats", "-v").out, r"(?m)^typo +0 +1 +1 .* - +\S.*$")

    def test_show_tells_what_a_variant_was_made_from(self):
        self.fill()
        key = self.variant()["key"]
        text = self.run_command("show", key[:12]).out
        for wanted in [key, "variant", "plain_kernel", "sm_90a", "registers       40",
                       "  parameter.n=1\n", "212 ms"]:
            self.assertIn(wanted, text)
        self.assertEqual(self.json("show", key.upper())["metadata"]["registers"], "40")

    def test_show_prints_source_and_key_byte_for_byte_to_a_pipe(self):
        self.fill()
        key = self.variant()["key"]
        self.assertEqual(self.run_command("show", key, "--source").stdout,
                         b"a kernel's source\x1b[31m\n")
        self.assertEqual(self.run_command("show", key, "--key").out,
                         "jitcache=1\narch=sm_90a\nparameter.n=1\n")
        template = self.json("ls", "--kind", "template")["records"][0]["key"]
        self.assertEqual(self.run_command("show", template, "--source").out,
                         "the source\nof it\n")

    def test_show_writes_the_cubin_to_a_file_or_a_pipe(self):
        self.fill()
        key, path = self.variant()["key"], self.folder / "a.cubin"
        self.run_command("show", key, "--cubin", "-o", path)
        self.assertEqual(path.read_bytes(), b"the cubin")
        self.assertEqual(self.run_command("show", key, "--cubin", "-o", "-").out, "the cubin")
        self.assertIn("cannot write", self.complaint("show", key, "--cubin", "-o", "/dev/full"))
        self.assertIn("No such", self.complaint("show", key, "--cubin", "-o",
                                                self.folder / "none" / "a.cubin"))

    def test_a_cubin_does_not_go_to_a_terminal(self):
        self.fill()
        status, text = self.at_terminal("show", self.variant()["key"], "--cubin", "-o", "-")
        self.assertEqual(status, 2)
        self.assertIn("not for a terminal", text)

    def test_only_a_variant_has_a_cubin(self):
        self.fill()
        template = self.json("ls", "--kind", "template")["records"][0]["key"]
        message = self.complaint("show", template, "--cubin", "-o", self.folder / "x")
        self.assertIn("only a variant has a cubin", message)

    def test_of_two_records_with_one_key_the_variant_is_shown(self):
        self.fill()
        key = self.variant()["key"]
        self.assertEqual(self.json("show", key)["kind"], "variant")
        failure = self.json("show", key, "--kind", "failure")
        self.assertEqual(failure["message"], "it does not compile\nas the log says")
        self.assertIn("  as the log says\n", self.run_command("show", key, "--kind", "failure").out)

    def test_digits_that_begin_several_keys_list_them(self):
        self.fill("many", 1500)
        keys = [each["key"] for each in self.json("ls", "--kind", "variant")["records"]]
        count = collections.Counter(key[:4] for key in keys)
        prefix, several = count.most_common(1)[0]
        self.assertGreater(several, 1)
        done = self.run_command("show", prefix, status=2)
        self.assertIn("more than one key", done.err)
        for key in keys:
            if key.startswith(prefix):
                self.assertIn(key, done.err)

    def test_digits_that_begin_no_key_are_told(self):
        self.fill()
        known = {each["key"][:4] for each in self.json("ls")["records"]}
        unknown = next(f"{i:04x}" for i in range(65536) if f"{i:04x}" not in known)
        self.assertIn(f"no record has a key that begins with {unknown}",
                      self.complaint("show", unknown))

    def test_names_cannot_drive_the_terminal(self):
        self.fill("odd")
        for words in [["ls"], ["stats"], ["show", self.json("ls")["records"][-1]["key"]]]:
            done = self.run_command(*words)
            self.assertNotIn(b"\x1b", done.stdout)
            self.assertIn(r"od\x1b[2Jd\xff\u202e", done.out)
        kernels = {each["kernel"] for each in self.json("ls")["records"]}
        self.assertIn("od\x1b[2Jd\ufffd\u202e", kernels)

    def test_source_at_a_terminal_cannot_drive_it(self):
        self.fill()
        status, text = self.at_terminal("show", self.variant()["key"], "--source")
        self.assertEqual((status, text), (0, "a kernel's source\\x1b[31m\r\n"))

    def test_reading_writes_nothing(self):
        self.fill()
        before = {path.name: path.read_bytes() for path in self.cache.iterdir()}
        for words in [["ls"], ["stats"], ["show", self.variant()["key"]]]:
            self.run_command(*words)
        self.assertEqual({path.name: path.read_bytes() for path in self.cache.iterdir()}, before)

    def test_clear_removes_everything_and_says_how_much(self):
        self.fill()
        total = sum(each["bytes"] for each in self.json("ls")["records"])
        self.assertEqual(self.json("clear", "--yes"), {"removed": 4, "bytes": total})
        self.assertEqual(self.json("ls")["records"], [])
        self.assertEqual(self.run_command("clear", "-y").out, "removed 0 records, 0 B\n")

    def test_clear_asks_at_a_terminal(self):
        self.fill()
        for answer in [b"n\n", b"\n", b"\x04"]:
            status, text = self.at_terminal("clear", answer=answer)
            self.assertEqual(status, 2, text)
            self.assertIn("Remove 4 records", text)
            self.assertIn("nothing was removed", text)
        self.assertEqual(len(self.json("ls")["records"]), 4)
        status, text = self.at_terminal("clear", answer=b"yes\n")
        self.assertEqual(status, 0, text)
        self.assertIn("removed 4 records", text)
        self.assertEqual(self.json("ls")["records"], [])


if __name__ == "__main__":
    harness.main()
