"""What people see of a prewarm, with the library's part played: see play.c."""
import os
import re
import signal
import subprocess
import unittest

import harness
ARCH = ["--arch", "sm_90a"]

KERNEL = """/*jitcache
kernel: %s
parameters:
  - {name: n, type: int}
arguments:
  - {name: x, type: f32*}
*/
#include <jitcache.cuh>
extern "C" __global__ void %s(float *x) { x[0] = JC_PARAM(n); }
"""

CRASH = r"many.cu: many for sm_90a: the compiler crashed\nsignal 11\njitcache prewarm --key %04x"


class Playing(harness.Case):
    command = harness.PLAYER

    def setUp(self):
        super().setUp()
        self.played = self.folder / "played"
        self.env["JITCACHE_PLAYED"] = str(self.played)

    def kernel(self, name):
        return self.write(f"{name}.cu", KERNEL % (name, name))

    def play(self, *steps):
        self.env["JITCACHE_PLAY"] = self.write("play", "\n".join(steps) + "\n")

    def words(self, count, name="many"):
        return ["prewarm", self.kernel(name), *ARCH, "--param",
                "n=" + ",".join(map(str, range(count)))]

    # --- what the library is asked for -----------------------------------------------------------

    def test_options_reach_the_library(self):
        self.play("vouch")
        key = "ABcd12"
        for words, context, call in [
                ([], "workers=0 timeout_ns=0",
                 "all check=0 retry=0 background=0 key=any sm_90a"),
                (["-j", 7, "--timeout", 90], "workers=7 timeout_ns=90000000000", None),
                (["--jobs", 0, "--timeout", "1.5"], "workers=0 timeout_ns=1500000000", None),
                (["--timeout", "100000.25"], "workers=0 timeout_ns=100000250000000", None),
                (["--background", "--retry", "--key", key, "--arch", "sm_80"], None,
                 "all check=0 retry=1 background=1 key=abcd12 sm_90a sm_80")]:
            self.played.unlink(missing_ok=True)
            self.run_command(*self.words(1), *words)
            told = self.played.read_text().splitlines()
            self.assertIn("context " + (context or "workers=0 timeout_ns=0"), told)
            self.assertIn(call or "all check=0 retry=0 background=0 key=any sm_90a", told)

    def test_from_cache_takes_no_file_and_needs_no_architecture(self):
        self.play()
        for words, call in [([], ""), (["--arch", "sm_80", "--arch", "sm_90a"], " sm_80 sm_90a")]:
            self.played.unlink(missing_ok=True)
            text = self.run_command("prewarm", "--from-cache", *words).out
            self.assertIn("cached check=0 retry=0 background=0 key=any" + call,
                          self.played.read_text().splitlines())
            self.assertRegex(text, r"\Afrom the cache: 0 planned, 0 hits, 0 compiled, 0 failed, ")
        self.assertEqual(self.json("prewarm", "--from-cache")["files"], [])
        self.play("answer 3 there is nothing in it; prewarm files first")
        self.assertEqual(self.complaint("prewarm", "--from-cache"),
                         "jitcache: there is nothing in it; prewarm files first")

    # --- the summary -----------------------------------------------------------------------------

    def test_the_summary_counts_and_says_how_fast(self):
        self.play("hit 2", "awaited 3", "advance 5000", "compiled 15")
        text = self.run_command(*self.words(20)).out
        self.assertRegex(text, r"\Amany: 20 planned, 5 hits \(3 compiled by others meanwhile\), "
                               r"15 compiled, 0 failed, 5\.\d s, [23]\.\d/s\n\Z")
        self.play("hit 1", "compiled 2")
        text = self.run_command(*self.words(3)).out
        self.assertRegex(text, r"\Amany: 3 planned, 1 hit, 2 compiled, 0 failed, \d+ .s\n\Z")

    def test_what_was_vouched_for_says_so(self):
        self.play("vouch")
        self.assertRegex(self.run_command(*self.words(20)).out,
                         r"\Amany: 20 planned, 20 hits, 0 compiled, 0 failed, \d+ .s; complete "
                         r"since an earlier run\n\Z")
        report = self.json(*self.words(20))
        self.assertEqual((report["hits"], report["vouched"], report["files"][0]["vouched"]),
                         (20, 20, 20))

    def test_several_files_have_a_line_each_in_their_order(self):
        first, second = self.words(3, "first"), self.words(3, "second")
        self.play("compiled 2", "hit 1", "awaited 1", "compiled 2")
        text = self.run_command(*first, second[1]).out
        self.assertRegex(text, r"\Afirst: 3 planned, 1 hit, 2 compiled, 0 failed\n"
                               r"second: 3 planned, 1 hit \(1 compiled by others meanwhile\), "
                               r"2 compiled, 0 failed\n"
                               r"in all: 6 planned, 2 hits \(1 .*\), 4 compiled, 0 failed, \d+ .s"
                               r"\n\Z")

    def test_json_has_the_documented_names(self):
        self.play("hit 1", "awaited 1", "failed 1 no good", "missing 1")
        report = self.json(*self.words(4), status=1)
        counts = {"planned": 4, "compiled": 0, "hits": 2, "missing": 1, "failed": 1, "awaited": 1,
                  "vouched": 0, "remaining": 0}
        self.assertEqual(set(report), set(counts) | {"seconds", "interrupted", "files", "failures",
                                                     "missing_list"})
        self.assertEqual(set(report["files"][0]), set(counts) | {"seconds", "kernel", "file"})
        for object in [report, report["files"][0]]:
            self.assertEqual({name: object[name] for name in counts}, counts)
            self.assertIs(type(object["seconds"]), float)
        self.assertEqual(set(report["failures"][0]),
                         {"kernel", "file", "arch", "specialization", "key", "message"})
        self.assertEqual(report["missing_list"][0]["specialization"], "parameter.n=3\n")

    # --- failures --------------------------------------------------------------------------------

    def test_failures_are_listed_at_the_end_up_to_twenty(self):
        self.play("failed 20 all wrong", "compiled 3")
        done = self.run_command(*self.words(23), status=1)
        summary, *lines = done.out.splitlines()
        self.assertIn("3 compiled, 20 failed", summary)
        for i, line in enumerate(lines):
            self.assertRegex(line, rf"\A  failed: [0-9a-f]{{12}} many sm_90a n={i} generic\Z")
        self.assertEqual(len(lines), 20)
        self.assertEqual(done.err.count("all wrong"), 1)
        self.assertRegex(done.err, r"(?m)^jitcache: 19 more variants of many failed alike$")
        self.play("failed 23 all wrong")
        done = self.run_command(*self.words(23), status=1)
        self.assertEqual(len(done.out.splitlines()), 22)
        self.assertEqual(done.out.splitlines()[-1], "  ... and 3 more; --json has all")
        self.assertEqual(len(self.json(*self.words(23), status=1)["failures"]), 23)

    def test_each_message_is_told_once_for_each_kernel(self):
        self.play(r"failed 2 a.cu: one\nthe log", r"failed 1 a.cu: two\nthe log",
                  r"failed 1 b.cu: one\nthe log", r"failed 2 b.cu: one\nanother")
        words = self.words(3, "first")
        done = self.run_command(*words, self.kernel("second"), status=1)
        self.assertEqual(done.err.count("the log"), 2, done.err)
        self.assertEqual(done.err.count("another"), 1, done.err)
        self.assertIn("jitcache: 2 more variants of first failed alike\n", done.err)
        self.assertIn("jitcache: 1 more variant of second failed alike, as one of those"
                      " above\n", done.err)
        done = self.run_command(*words, self.kernel("second"), "-v", status=1)
        self.assertEqual(len(re.findall(r"(?m)^failed +50 ms  ", done.err)), 3)
        self.assertNotIn("alike", done.err)

    def test_every_crash_is_told_with_its_command(self):
        self.play(*[f"failed 1 {CRASH % i}" for i in range(30)])
        done = self.run_command(*self.words(30), status=1)
        self.assertEqual(re.findall(r"(?m)^    jitcache prewarm --key (\w+)$", done.err),
                         [f"{i:04x}" for i in range(30)])

    def test_a_message_without_end_keeps_its_beginning_and_its_last_line(self):
        self.play(r"failed 1 many.cu: crashed\n" + "x" * 300000 + r"\njitcache prewarm --key 1234")
        message = self.json(*self.words(1), status=1)["failures"][0]["message"]
        self.assertLess(len(message), 66000)
        self.assertTrue(message.startswith("many.cu: crashed\nxxx"))
        self.assertRegex(message, r"x\n\.\.\. \(\d+ bytes left out\)\n"
                                  r"jitcache prewarm --key 1234\Z")
        told = self.run_command(*self.words(1), status=1).err
        self.assertLess(len(told), 66000)
        self.assertIn("\n    jitcache prewarm --key 1234\n", told)

    def test_many_long_messages_do_not_take_memory_without_bound(self):
        self.play(*[f"failed 1 x{i}\\n" + f"{i:04}" * 15000 + f"\\nlast {i}" for i in range(3000)])
        failures = self.json(*self.words(3000), status=1)["failures"]
        self.assertEqual(len(failures), 3000)
        for i, failure in enumerate(failures):
            self.assertTrue(failure["message"].startswith(f"x{i}\n{i:04}"))
            self.assertTrue(failure["message"].endswith(f"\nlast {i}"))
        self.assertIn("left out", failures[-1]["message"])
        self.assertNotIn("left out", failures[500]["message"])
        self.assertLess(sum(len(each["message"]) for each in failures), 72 << 20)

    def test_an_error_in_the_middle_leaves_a_summary(self):
        self.play("compiled 3", "answer 5 the disk is full")
        done = self.run_command(*self.words(9), status=2)
        self.assertIn("9 planned, 0 hits, 3 compiled", done.out)
        self.assertEqual(done.err, "jitcache: the disk is full\n")
        done = self.run_command(*self.words(9), "--json", status=2)
        self.assertEqual((done.out, done.err), ("", "jitcache: the disk is full\n"))
        self.play("answer 5 there is no worker")
        self.assertEqual(self.complaint(*self.words(9)), "jitcache: there is no worker")

    def test_what_the_library_says_of_its_parameters_is_said_of_options(self):
        self.play(r"failed 1 k.cu: failed 3 s ago; `retry` (--retry) compiles it again",
                  "answer 5 /x: the parameter nvrtc names no NVRTC, the parameter nvrtc")
        told = self.run_command(*self.words(2), status=2).err
        self.assertIn("failed 3 s ago; --retry compiles it again\n", told)
        self.assertTrue(told.endswith("jitcache: /x: --nvrtc names no NVRTC, --nvrtc\n"), told)

    def test_what_begins_anew_is_counted_once(self):
        self.play("failed 2 a\\nlog", "missing 2", "again", "failed 1 a\\nlog", "missing 3",
                  "hit 5")
        done = self.run_command(*self.words(9), "--check", status=1)
        self.assertIn("9 planned, 5 hits, 3 missing, 1 failed, ", done.out)
        self.assertEqual((done.out.count("  missing: "), done.out.count("  failed: ")), (3, 1))
        report = self.json(*self.words(9), "--check", status=1)
        self.assertEqual((len(report["missing_list"]), len(report["failures"])), (3, 1))

    # --- how far it is ---------------------------------------------------------------------------

    def lines(self, text):
        """What stood on the progress line, one after another."""
        return re.findall(r"\r(\[[^\r\x1b]*)\x1b\[K", text)

    def test_a_terminal_shows_rate_and_remaining_time(self):
        steps = ["underway 2 0"]
        for _ in range(30):
            steps += ["advance 500", "compiled 5", "advance 100", "underway 2 1"]
        self.play(*steps)
        status, text = self.at_terminal(*self.words(300))
        self.assertEqual(status, 0, text)
        lines = self.lines(text)
        self.assertEqual(lines[0], "[  0/300]  2 compiling")
        self.assertIn("/s", "".join(lines[2:5]))
        self.assertNotIn(" left", "".join(lines[:5]))
        self.assertRegex(lines[-1], r"\A\[150/300\]  8\.\d/s  1[6-9]s left  2 compiling, "
                                    r"1 awaited\Z")
        self.assertRegex(text, r"\r\x1b\[Kmany: 300 planned")

    def test_hits_make_no_rate(self):
        self.play("advance 1000", "hit 50", "advance 1000", "hit 50", "advance 1000", "hit 50",
                  "advance 100", "underway 0 0")
        text = self.at_terminal(*self.words(200))[1]
        self.assertEqual(self.lines(text)[-1], "[150/200]")

    def test_the_rate_is_that_of_the_last_seconds(self):
        steps = ["underway 2 0"]
        for pause in [20] * 100 + [1000] * 30:
            steps += [f"advance {pause}", "compiled 1", "underway 2 0"]
        self.play(*steps)
        line = self.lines(self.at_terminal(*self.words(200))[1])[-1]
        self.assertRegex(line, r"\A\[130/200\]  (0\.9|1\.0)/s  1m1\ds left\Z")

    def test_slow_compiles_have_a_remaining_time_too(self):
        steps = ["underway 2 0"]
        for _ in range(8):
            steps += ["advance 60000", "compiled 1", "underway 2 0"]
        self.play(*steps)
        lines = self.lines(self.at_terminal(*self.words(200))[1])
        self.assertRegex(lines[-1], r"\A\[  8/200\]  3h1\dm left\Z")
        self.assertNotIn("left", lines[3])

    def test_the_line_is_no_longer_than_the_terminal_is_wide(self):
        self.play("compiled 3", "advance 1000", "underway 2 3")
        full = self.lines(self.at_terminal(*self.words(20))[1])[-1]
        self.assertEqual(full, "[ 3/20]  2.0/s  2 compiling, 3 awaited")
        for columns in [2, 20, 40]:
            text = self.at_terminal(*self.words(20), columns=columns)[1]
            self.assertEqual(self.lines(text)[-1], full[:columns - 1])

    def test_a_terminal_that_can_do_nothing_gets_lines(self):
        self.env["TERM"] = "dumb"
        self.play("compiled 3", "advance 31000", "compiled 3")
        text = self.at_terminal(*self.words(20))[1]
        self.assertNotIn("\r[", text)
        self.assertRegex(text, r"(?m)^jitcache: \[ 4/20\]")

    def test_a_log_gets_a_line_every_thirty_seconds(self):
        self.play("underway 2 0", "advance 29000", "compiled 10", "advance 2000", "compiled 10",
                  "advance 29000", "compiled 10", "advance 2000", "compiled 10", "underway 2 0")
        for more in [[], ["--json"]]:
            err = self.run_command(*self.words(100), *more, remark="jitcache: [").err
            self.assertRegex(err, r"\Ajitcache: \[ 11/100\]  5\.0/s\n"
                                  r"jitcache: \[ 31/100\]  5\.0/s\n\Z")
        self.play("underway 2 0", "advance 29000", "compiled 10")
        self.assertEqual(self.run_command(*self.words(100)).err, "")

    def test_a_process_in_the_background_of_its_terminal_writes_no_line(self):
        self.play("compiled 3", "underway 2 0", "log something else", "compiled 3")
        self.env["ENV"] = ""
        script = 'set -m; "$@" & wait $!'
        command, self.command = self.command, "/bin/sh"
        try:
            status, text = self.at_terminal("-c", script, "-", command, *self.words(20))
        finally:
            self.command = command
        self.assertEqual(status, 0, text)
        self.assertIn("many: 20 planned", text)
        self.assertEqual(self.lines(text), [])

    def test_what_another_thread_logs_comes_whole(self):
        self.play("underway 2 0", "log the worker is slow", "advance 200", "compiled 1",
                  "log and slower", "underway 1 0")
        text = self.at_terminal(*self.words(20))[1]
        self.assertIn("\r\x1b[Kjitcache: warning: the worker is slow\r\n", text)
        self.assertIn("\r\x1b[Kjitcache: warning: and slower\r\n", text)
        self.assertEqual(text.count("slow"), 2)

    def test_verbose_names_each_variant(self):
        self.play("hit 1", "compiled 1", "awaited 1", "underway 2 2")
        err = self.run_command(*self.words(3), "-v").err
        self.assertEqual(re.findall(r"(?m)^(\w+) +(?:\d+ ms)?  [0-9a-f]{12} many sm_90a "
                                    r"n=(\d) generic$", err),
                         [("hit", "0"), ("compiled", "1"), ("hit", "2")])

    # --- signals ---------------------------------------------------------------------------------

    def test_a_signal_ends_it_at_once_with_a_summary(self):
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
            self.play("compiled 3", f"signal {number}", "underway 2 0", "compiled 5")
            done = self.run_command(*self.words(20), status=128 + number)
            self.assertIn("many: 20 planned, 0 hits, 3 compiled, 0 failed, 17 not reached, ",
                          done.out)
            self.assertIn("run the same command again to go on", done.err)
            report = self.json(*self.words(20), status=128 + number)
            self.assertEqual((report["interrupted"], report["compiled"], report["remaining"]),
                             (True, 3, 17))
            self.assertEqual(report["files"][0]["remaining"], 17)

    def test_a_second_signal_of_whichever_kind_ends_the_process(self):
        for first in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
            for second in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
                self.play("compiled 3", f"signal {first}", "advance 300", f"signal {second}")
                done = subprocess.run([self.command, *self.words(20)], env=self.env,
                                      capture_output=True, timeout=harness.LIMIT_S)
                self.assertEqual((done.returncode, done.stdout), (-second, b""))

    def test_a_process_and_its_group_signalled_at_once_is_one_signal(self):
        for pause in [0, 200]:
            self.play("compiled 3", f"signal {signal.SIGTERM}", f"advance {pause}",
                      f"signal {signal.SIGTERM}", f"signal {signal.SIGINT}")
            done = self.run_command(*self.words(20), status=128 + signal.SIGTERM)
            self.assertIn("17 not reached", done.out)

    def test_a_signal_that_is_ignored_stays_so(self):
        self.play("compiled 3", f"signal {signal.SIGHUP}", "compiled 5")
        done = subprocess.run(["nohup", self.command, *self.words(20)], env=self.env,
                              capture_output=True, timeout=harness.LIMIT_S)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"8 compiled", done.stdout)

    # --- streams ---------------------------------------------------------------------------------

    def test_a_standard_stream_that_is_closed_or_gone_is_no_crash(self):
        self.play("compiled 3", r"failed 2 no\nlog", "advance 31000", "underway 2 0")
        for streams, status in [([0], 1), ([2], 1), ([1], 2), ([0, 1, 2], 2)]:
            done = subprocess.run([self.command, *self.words(5)], env=self.env,
                                  capture_output=True, timeout=harness.LIMIT_S,
                                  preexec_fn=lambda: [os.close(stream) for stream in streams])
            self.assertEqual(done.returncode, status, (streams, done))
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([self.command, *self.words(5)], env=self.env, stdout=subprocess.PIPE,
                              stderr=writer, timeout=harness.LIMIT_S,
                              preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
        os.close(writer)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"3 compiled, 2 failed", done.stdout)


if __name__ == "__main__":
    harness.main()
