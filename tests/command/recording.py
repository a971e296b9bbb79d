"""Manifests that an engine records, and what prewarm makes of them: see engine.c."""
import os
import random
import re
import subprocess
import time
import unittest

import harness

ENGINE = os.environ["JITCACHE_ENGINE"]
SIM = os.environ["JITCACHE_SIM_FOLDER"]
FIRST = "jitcache-manifest 1\n"

TEMPLATE = """/*jitcache
kernel: k
arguments:
  - {name: p, type: f32*}
  - {name: n, type: i32, facets: [value], range: [1, 3]}
launch: {block: 32}
*/
#include <jitcache.cuh>
extern "C" __global__ void k(float *p, int n) { JC_FACT(p); JC_FACT(n); }
"""


class Recording(harness.Case):
    def setUp(self):
        super().setUp()
        self.count = self.folder / "count"
        self.manifest = self.folder / "engine.manifest"
        found = re.search(r"NVRTC \S+ at (\S+),", self.run_command(
            "prewarm", "-v", self.write("k.cu", TEMPLATE), "--arch", "9.0", "--generic",
            "--check", status=1).err)
        self.env.update(JITCACHE_NVRTC=os.environ["JITCACHE_FORWARD_NVRTC"],
                        JITCACHE_REAL_NVRTC=found[1], JITCACHE_NVRTC_COUNT=str(self.count))
        self.engine_env = dict(self.env, LD_LIBRARY_PATH=SIM + ":" + os.environ.get(
            "LD_LIBRARY_PATH", ""))

    def compiles(self):
        """How many compiles NVRTC was asked for since the last time."""
        text = self.count.read_text() if self.count.exists() else ""
        self.count.unlink(missing_ok=True)
        return text.count("\n")

    def start(self, *words, **variables):
        return subprocess.Popen([ENGINE, *map(str, words)], env=dict(self.engine_env, **variables),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=self.folder)

    def engine(self, *words, status=0, **variables):
        process = self.start(*words, **variables)
        out, err = process.communicate(timeout=harness.LIMIT_S)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def record(self, *words, said="", **variables):
        out, err = self.engine(*words, JITCACHE_RECORD=str(self.manifest), **variables)
        self.assertRegex(err, rf"\A{said}\Z")
        return out

    def lines(self):
        """Those that name a template: a blank one parts lines that were written at once."""
        first, *lines = self.manifest.read_text().splitlines()
        self.assertEqual(first + "\n", FIRST)
        return [line for line in lines if line]

    def clear(self):
        self.run_command("clear", "--yes")
        self.compiles()

    # --- replayed --------------------------------------------------------------------------------

    def replay(self, template):
        """Records a run, brings what it recorded into an empty cache, and runs again."""
        steps = ["range=1:3", "warmup", "prepare=40", "launch=50", "launch=50", "seal",
                 "launch=60"]
        self.record(template, *steps, said="log: after the seal: [^:]*: a call found its variant"
                                           " not loaded;(.|\n)* --range n=60\n")
        self.assertGreater(self.compiles(), 0)
        lines = self.lines()
        self.assertEqual(["--generic" in line for line in lines],
                         [True, False, False, False, False], lines)
        for line, option in zip(lines[1:], ["n=1:3", "n=40", "n=50", "n=60"]):
            self.assertIn(f" --range {option}", line)
        self.clear()
        self.assertIn("7 missing", self.run_command("prewarm", self.manifest, "--check",
                                                    status=1).out)
        done = self.json("prewarm", self.manifest)
        self.assertEqual((done["failed"], self.compiles()), (0, 1 + 3 + 3))
        self.run_command("prewarm", self.manifest, "--check")
        # Of the call after the seal alone nothing is loaded when it comes.
        for policy in ["wait", "generic", "fail"]:
            out = self.record(template, "range=1:3", "warmup", "prepare=40", "prepare=50",
                              "prepare=60", "launch=40", "launch=50", "launch=60",
                              JITCACHE_POLICY=policy)
            self.assertEqual((out, self.compiles()), ("compiles=0\n", 0))
        self.assertEqual(self.lines(), lines)

    def test_what_was_recorded_is_all_that_the_next_run_needs(self):
        self.replay("k.cu")

    def test_generated_sources_are_replayed_from_beside_the_manifest(self):
        self.replay("-")
        # Both are moved together.
        moved = self.folder / "elsewhere"
        moved.mkdir()
        for name in ["engine.manifest", "engine.manifest.d"]:
            os.rename(self.folder / name, moved / name)
        self.run_command("prewarm", moved / "engine.manifest", "--check")
        self.clear()
        self.run_command("prewarm", moved / "engine.manifest")
        self.assertEqual(self.engine("-", "range=1:3", "warmup", "prepare=60"),
                         ("compiles=0\n", ""))

    def test_a_line_can_be_tried_alone_by_pasting_it(self):
        self.record("-", "prepare=7")
        self.record("k.cu", "prepare=7")
        for line in self.lines():
            done = subprocess.run(f"{harness.COMMAND} prewarm --check {line}", shell=True,
                                  env=self.env, cwd=self.folder, capture_output=True, text=True,
                                  timeout=harness.LIMIT_S)
            self.assertEqual((done.returncode, done.stderr), (0, ""), line)

    def test_what_a_manifest_cannot_say_is_told(self):
        self.record("-", "null=3")  # aligned to everything, and no facet asks for more
        self.assertEqual(len(self.lines()), 2)
        self.write("null.cu", TEMPLATE.replace("f32*}", 'f32*, facets: ["null", {align: 16}]}'))
        self.record("null.cu", "null=3", "null=4", said="log: k: a call is not recorded: a pointer"
                                                        " is null.*jc_kernel_prepare makes its"
                                                        " variant\n")
        self.assertEqual(len(self.lines()), 3)

    # --- several, and killed ones ----------------------------------------------------------------

    def numbers(self):
        """The numbers of the calls that are recorded; every line is whole."""
        found = []
        for line in self.lines():
            self.assertRegex(line, r"\A/\S+ --arch 9\.0 (--generic|--range n=\d+) "
                                   r"--source [0-9a-f]{32}\Z")
            found += [int(number) for number in re.findall(r"n=(\d+)", line)]
        return found

    def test_processes_that_record_into_one_file_write_whole_lines(self):
        self.engine("k.cu")
        engines = [self.start("k.cu", "launches=400", JITCACHE_POLICY="fail",
                              JITCACHE_RECORD="engine.manifest") for _ in range(3)]
        for each in engines:
            out, err = each.communicate(timeout=harness.LIMIT_S)
            self.assertEqual((each.returncode, err), (0, ""))
        self.assertEqual(set(self.numbers()), set(range(1, 401)))

    def test_a_process_that_is_killed_leaves_a_manifest_that_can_be_replayed(self):
        self.engine("k.cu")
        seed = random.Random(5)
        grown = 0
        for _ in range(12):
            engine = self.start("k.cu", "launches=0", JITCACHE_POLICY="fail",
                                JITCACHE_RECORD="engine.manifest")
            # Once it writes, some thousandths of a second more.
            end = time.monotonic() + harness.LIMIT_S
            before = self.manifest.stat().st_size if self.manifest.exists() else 0
            while time.monotonic() < end and engine.poll() is None and (
                    not self.manifest.exists() or self.manifest.stat().st_size <= before):
                time.sleep(0.001)
            time.sleep(seed.random() / 100)
            engine.kill()
            engine.communicate()
            whole = [line for line in self.lines() if not line.startswith("#")]
            grown = max(grown, len(whole))
            for line in whole:
                self.assertRegex(line, r"\A/\S+ --arch 9\.0 (--generic|--range n=\d+) --source "
                                       r"[0-9a-f]{32}\Z")
        self.assertGreater(grown, 1)
        done = self.run_command("prewarm", self.manifest, "--check", "--json", status=1)
        self.assertEqual(done.err, "")

    # --- files that cannot be written ------------------------------------------------------------

    def test_an_engine_that_cannot_record_says_so_at_once(self):
        self.write("text", "no manifest\n")
        for name, said in [("none/file", "No such file or directory"), (".", "Is a directory"),
                           ("text", "is no manifest")]:
            out, err = self.engine("k.cu", status=3, JITCACHE_RECORD=name)
            self.assertIn(said, err)
            self.assertIn(os.path.join(self.folder, name), err)
        self.assertEqual((self.folder / "text").read_text(), "no manifest\n")

    def test_a_file_that_only_others_may_write_is_told(self):
        self.write("engine.manifest", FIRST)
        os.chmod(self.manifest, 0o444)
        if os.access(self.manifest, os.W_OK):
            self.skipTest("this user may write everything")
        self.assertIn("Permission denied", self.engine("k.cu", status=3,
                                                       JITCACHE_RECORD="engine.manifest")[1])

    def test_a_full_disk_costs_the_rest_of_the_record_alone(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk],
                                 capture_output=True, text=True)
        if mounted.returncode:
            self.skipTest(f"no file system of its own: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        self.engine("k.cu")
        out, err = self.engine("k.cu", "launches=400", JITCACHE_POLICY="fail",
                               JITCACHE_RECORD="disk/engine.manifest")
        self.assertEqual(err.count("log: "), 1, err)
        self.assertIn("nothing more is recorded", err)
        self.manifest = disk / "engine.manifest"
        self.assertGreater(self.manifest.stat().st_size, 12000)
        done = self.run_command("prewarm", self.manifest, "--check", "--json", status=1)
        self.assertEqual(done.err, "")

    # --- templates that are another by now -------------------------------------------------------

    def test_a_template_that_has_changed_is_told_and_done(self):
        self.record("k.cu", "prepare=7", "prepare=8")
        self.write("k.cu", TEMPLATE + "// a word more\n")
        done = self.run_command("prewarm", self.manifest, remark="warning: ")
        self.assertEqual(done.err.count("has changed since this was recorded"), 1, done.err)
        self.assertIn(f"{self.manifest}:2: {self.folder}/k.cu has changed", done.err)
        self.assertIn("3 compiled", done.out)
        self.record("k.cu", "prepare=7", "prepare=8")
        self.assertEqual(len(self.lines()), 6)  # those of the source of now

    def passed_over(self, count, verb, **options):
        done = self.run_command("prewarm", self.manifest, "--check", remark="warning: ", **options)
        self.assertEqual(done.err.count("warning: "), 1, done.err)
        self.assertIn(f"{self.manifest}: {count} of an older {self.folder}/k.cu {verb} passed over;"
                      " others are of what it is now.", done.err)
        return done

    def test_lines_of_an_older_file_are_passed_over_where_there_are_those_of_now(self):
        self.record("k.cu", "prepare=7", "prepare=8")
        # Their settings would not even fit any more.
        changed = TEMPLATE.replace("name: n", "name: count").replace("(n)", "(count)").replace(
            "int n", "int count")
        self.write("k.cu", changed)
        self.record("k.cu", "prepare=7")
        self.assertEqual(len(self.lines()), 5)
        self.assertIn("k: 2 planned, 2 hits", self.passed_over("3 lines", "are").out)
        # What is as old as the file was once is for that file.
        self.write("k.cu", TEMPLATE)
        self.assertIn("k: 3 planned, 3 hits", self.passed_over("2 lines", "are").out)
        # Of another file, and without a digest, all counts.
        text = self.manifest.read_text().splitlines()
        self.write("other.cu", changed)
        self.manifest.write_text("\n".join(text[:2] + [text[4].replace("k.cu", "other.cu"), text[5],
                                                       "k.cu --arch 9.0 --range n=7"]))
        self.assertIn("3 planned, 3 hits", self.passed_over("1 line", "is").out)
        # Where none is of now, all of them are done.
        self.write("k.cu", TEMPLATE + "// once more\n")
        done = self.run_command("prewarm", self.manifest, status=2)
        self.assertIn("has changed since this was recorded", done.err)
        self.assertNotIn("passed over", done.err)

    def test_what_is_recorded_by_a_link_is_replayed_by_it_and_without_it(self):
        (self.folder / "data").mkdir()
        (self.folder / "data" / "real").write_text(FIRST)
        os.symlink("data/real", self.manifest)
        self.record("-", "prepare=7")
        for name in ["engine.manifest", "data/real"]:
            self.assertIn("2 hits", self.run_command("prewarm", self.folder / name, "--check").out)

    def test_what_several_lines_have_counts_once(self):
        self.record("k.cu", "range=1:2", "warmup", "prepare=2", "prepare=7")
        self.clear()
        self.assertEqual(len(self.lines()), 4)
        done = self.run_command("prewarm", self.manifest, "--check", status=1)
        self.assertIn("k: 4 planned, 0 hits, 4 missing", done.out)
        self.assertEqual(done.out.count("  missing: "), 4, done.out)
        done = self.json("prewarm", self.manifest)
        self.assertEqual((done["planned"], done["compiled"], done["hits"]), (4, 4, 0))
        self.assertEqual(self.compiles(), 4)

    def test_settings_that_a_changed_template_lacks_are_told_with_why(self):
        self.record("k.cu", "prepare=7")
        self.write("k.cu", TEMPLATE.replace("name: n", "name: count").replace("(n)", "(count)")
                   .replace("int n", "int count"))
        done = self.run_command("prewarm", self.manifest, status=2)
        self.assertIn(f"{self.manifest}:3: --range n: there is no argument of that name; did you"
                      " mean p?; the template has changed since this was recorded: record again",
                      done.err)

    def test_a_template_that_is_gone_is_told(self):
        self.record("k.cu", "prepare=7")
        os.unlink(self.folder / "k.cu")
        done = self.run_command("prewarm", self.manifest, status=2)
        self.assertIn(f"{self.manifest}:2: {self.folder}/k.cu: cannot open it: No such file",
                      done.err)

    def test_the_folder_of_includes_has_to_be_there(self):
        path = self.write("list", FIRST + "k.cu --arch 9.0 --generic --template-dir gone\n")
        self.assertIn(f"{path}:2: --template-dir {self.folder}/gone: there is no such folder",
                      self.complaint("prewarm", path))
        (self.folder / "inc").mkdir()
        self.write("inc/h.cuh", "// a header\n")
        self.write("k.cu", TEMPLATE.replace("#include", '#include "h.cuh"\n#include'))
        self.run_command("prewarm", self.write(
            "list", FIRST + "k.cu --arch 9.0 --generic --template-dir inc\n"))
        words = ["k.cu", "--arch", "9.0", "--generic"]
        self.run_command("prewarm", *words, "--template-dir", "inc", "--check", cwd=self.folder)

    # --- the command records nothing -------------------------------------------------------------

    def test_the_command_itself_records_nothing(self):
        self.env["JITCACHE_RECORD"] = str(self.manifest)
        self.run_command("prewarm", "k.cu", "--arch", "9.0", cwd=self.folder)
        self.run_command("stats")
        self.assertFalse(self.manifest.exists())
        self.env["JITCACHE_RECORD"] = "/nowhere/engine.manifest"
        self.run_command("stats")


if __name__ == "__main__":
    harness.main()
