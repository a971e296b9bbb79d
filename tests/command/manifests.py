"""Manifests: what their lines mean, and what is said of those that are wrong."""
import os
import random
import subprocess
import unittest

import harness
from harness import ROPE, SILU

FIRST = "jitcache-manifest 1\n"

PLAIN = """/*jitcache
kernel: plain
parameters:
  - {name: n, type: int}
  - {name: text, type: type, default: float}
arguments:
  - {name: x, type: f32*}
  - {name: count, type: i32, do_not_specialize: true, range: [1, 64]}
*/
#include <jitcache.cuh>
extern "C" __global__ void plain(float *x, int count) { JC_FACT(count); x[0] = JC_PARAM(n); }
"""

# A line behind the first one, and what is said of it. What stands before the colon is the line.
WRONG = [
    ("none.cu --arch sm_90a", "2: none.cu"),
    ("--arch sm_90a", "2: a template's FILE is missing"),
    ("'' --arch sm_90a", "2: the template's FILE is an empty word"),
    ("k.cu k.cu --arch sm_90a", "2: 'k.cu' and 'k.cu': one template to a line"),
    ("jitcache prewarm k.cu --param n=1 --arch 9.0", "2: leave out `jitcache prewarm`; a line is "
     "what stands behind it"),
    ("jitcache k.cu --arch 9.0", "2: 'jitcache' and 'k.cu': one template to a line"),
    ("k.cu --param n=1", "2: no architecture to compile for; add --arch"),
    ("k.cu --arch", "2: --arch needs a value"),
    ("k.cu --arch sm_90a --param # n=1", "2: --param needs a value"),
    ("k.cu --arch sm_90a --parm n=1", "2: unknown option --parm; did you mean --param?"),
    ("k.cu --arch sm_90a --rnage=n=1", "2: unknown option --rnage; did you mean --range?"),
    ("k.cu --arch sm_90a --jobs 3", "2: unknown option --jobs; a line takes --arch, --param,"),
    ("k.cu -j 3", "2: unknown option -j"),
    ("k.cu --arch sm_90a --param n", "2: --param wants NAME=VALUE, not 'n'"),
    ("k.cu --arch sm_90a --param =1", "2: --param wants NAME=VALUE"),
    ("k.cu --arch sm_90a --range count=", "2: --range wants NAME=LO:HI or NAME=VALUE"),
    ("k.cu --arch sm_90a --param n=1 --param n=2", "2: --param n is given twice"),
    ("k.cu --arch sm_90a --param m=1", "2: --param m: there is no parameter of that name; did you"),
    ("k.cu --arch sm_90a --param zebra=1", "2: --param zebra: the template has no parameter of"),
    ("k.cu --arch sm_90a --param count=1", "2: --param count: this is an argument; write --range"),
    ("k.cu --arch sm_90a --param n=x", "2: "),
    ("k.cu --arch sm_90a", "2: "),  # n has no default
    ("k.cu --arch sm_90a --param n=1 --range count=9:1", "2: "),
    ("\n\n# a comment\nk.cu 'open", "5: a ' is not closed"),
    ('k.cu "open \\"', '2: a " is not closed'),
    ("k.cu --arch sm_90a \\", "2: a backslash at the end; a line does not go on in the next"),
    ("k.cu --arch sm_90a\0 --param n=1", "2: a NUL byte; a manifest is a text file"),
    ("k.cu " + " " * 65536, "2: 65541 bytes; a line has at most 64 KiB"),
    ("bad.cu --arch sm_90a", "2: bad.cu:2: "),
    ("list --arch sm_90a", "2: list: is a manifest, and here goes a template;"),
    ("k.cu --param n=1 --arch hopper", "2: 'hopper' is not an architecture; write"),
    ("k.cu --param n=1 --arch ''", "2: '' is not an architecture; write"),
    ("k.cu --param n=1 --arch sm_9", "2: 'sm_9' is not an architecture; write"),
    ("k.cu --param n=1 --arch 9.", "2: '9.' is not an architecture; write"),
    ("k.cu --param n=1 --arch sm_90aa", "2: 'sm_90aa' is not an architecture; write"),
    ("k.cu --param n=1 --arch sm_90a,sm_100a", "2: 'sm_90a,sm_100a': give each architecture by"),
    ("k.cu --param n=1 --arch 10.0f", "2: '10.0f': code for a family of architectures, suffix f,"),
    ("k.cu --arch sm_90a --param n=1-40", "2: --param n=1-40: the values of a parameter are a li"),
    ("k.cu --arch sm_90a --param n=7,1:4", "2: --param n=7,1:4: the values of a parameter are a"),
    ("k.cu --param n=1 --arch 9.0 --generic --range count=1", "2: --generic is for the generic "
     "variant alone, which no --range changes; leave one of the two out"),
    ("k.cu --param n=1 --arch 9.0 --without count --generic", "2: --generic is for the generic "
     "variant alone, which no --without changes; leave one of the two out"),
    ("k.cu --param n=1 --arch 9.0 --generic=1", "2: --generic takes no value"),
    ("k.cu --param n=1 --arch 9.0 --source 12", "2: --source wants the 32 hexadecimal digits that"
     " were recorded, not '12'"),
    ("k.cu --param n=1 --arch 9.0 --source", "2: --source needs a value"),
    ("k.cu --arch 9.0 --source a --source b", "2: --source is given twice"),
    ("k.cu --param n=1 --arch 9.0 --template-dir ''", "2: --template-dir needs a value"),
    ("--template-dir .", "2: a template's FILE is missing"),
    ("k.cu --param n=1 --arch 9.0 --template-dir k.cu", "2: --template-dir k.cu: there is no such"
     " folder; it is where the includes of k.cu start"),
    ("k.cu --arch sm_90a --param n=1..4", "2: --param n=1..4: the values of a parameter are a li"),
]

# The whole file, and what is said of it.
WRONG_FIRST = [
    ("jitcache-manifest 2\nwhat may stand here\n", "is a manifest of version 2; this jitcache reads"
                                                   " version 1; install"),
    ("jitcache-manifest 4294967297\n", "is a manifest of version 4294967297;"),
    ("jitcache-manifest\n", "1: 'jitcache-manifest' names no version; write jitcache-manifest 1"),
    ("jitcache-manifest", "1: 'jitcache-manifest' names no version"),
    ("jitcache-manifest 0\n", "1: 'jitcache-manifest 0' names no version"),
    ("jitcache-manifest one\n", "1: 'jitcache-manifest one' names no version"),
    ("jitcache-manifest 1 k.cu\n", "1: 'jitcache-manifest 1 k.cu' names no version"),
    ("jitcache-manifest 1.5\n", "names no version"),
    ("jitcache-manifest\0 1\n", "1: a NUL byte"),
    (FIRST, "names no template"),
    ("jitcache-manifest 1", "names no template"),
    (FIRST + "\n  \t\n# only comments\n", "names no template"),
]

# Lines with one word to find: how it is written, and what it is.
QUOTED = [
    ("k.cu", "k.cu"), ("./k.cu", "./k.cu"), ("'k.cu'", "k.cu"), ('"k.cu"', "k.cu"),
    ("k'.c'u", "k.cu"), ("\\k.cu", "k.cu"), ('k"".cu', "k.cu"),
    ("'a b.cu'", "a b.cu"), ("a\\ b.cu", "a b.cu"), ('"a b.cu"', "a b.cu"),
    ("'a\\b.cu'", "a\\b.cu"), ('"a\\b.cu"', "a\\b.cu"), ('"a\\\\b.cu"', "a\\b.cu"),
    ("a\\\\b.cu", "a\\b.cu"), ("a#b.cu", "a#b.cu"), ("'#.cu'", "#.cu"), ("\\#.cu", "#.cu"),
    ('"it\'s.cu"', "it's.cu"), ("'say \"x\".cu'", 'say "x".cu'), ('"say \\"x\\".cu"', 'say "x".cu'),
    ("$HOME.cu", "$HOME.cu"), ("*.cu", "*.cu"), ("\tk.cu\t ", "k.cu"),
    ("./--arch.cu", "./--arch.cu"), ("schön.cu", "schön.cu"),
]


class Manifests(harness.Case):
    command = harness.PLAYER

    def setUp(self):
        super().setUp()
        self.played = self.folder / "played"
        self.env["JITCACHE_PLAYED"] = str(self.played)

    def wrong(self, text, *words):
        self.write("k.cu", PLAIN)
        self.write("bad.cu", "/*jitcache\nkernal: x\n*/\n")
        self.write("list", text)
        return self.run_command("prewarm", "list", *words, status=2, cwd=self.folder)

    def items(self, path, *words, **options):
        """What the library was asked for, a list of words each."""
        self.played.unlink(missing_ok=True)
        self.run_command("prewarm", path, *words, **options)
        return [line.removeprefix("item ") for line in self.played.read_text().splitlines()
                if line.startswith("item ")]

    def test_a_wrong_line_is_told_with_its_place(self):
        for text, wanted in WRONG:
            with self.subTest(text=text[:60]):
                done = self.wrong(FIRST + text + "\n")
                self.assertTrue(done.err.startswith(f"jitcache: list:{wanted}"), done.err)
                self.assertEqual(done.err.count("jitcache: "), 1, done.err)
        self.assertFalse(self.cache.exists(), "nothing was to be made of it")
        self.assertNotIn("all", self.played.read_text() if self.played.exists() else "")

    def test_a_wrong_first_line_is_told_and_nothing_else(self):
        for text, wanted in WRONG_FIRST:
            with self.subTest(text=text):
                done = self.wrong(text, "--arch", "sm_90a")
                self.assertIn(wanted, done.err)
                self.assertEqual(done.err.count("jitcache: "), 1, done.err)
        self.assertFalse(self.cache.exists())

    def test_a_file_that_was_meant_to_be_a_manifest_is_told_its_first_line(self):
        self.write("k.cu", PLAIN)
        line = "k.cu --param n=1 --arch sm_90a\n"
        wanted = "if this is to be a manifest, its first line has to be jitcache-manifest 1"
        for name, text in [("engine.manifest", line), ("engine.manifest", ""),
                           ("engine.manifest", "\n" + FIRST + line),
                           ("list", "jitcache-manifest1\n" + line),
                           ("list", "jitcache-manifest: 1\n" + line),
                           ("list", "# jitcache-manifest 1\n" + line),
                           ("list", "Jitcache-Manifest 1\n" + line)]:
            with self.subTest(name=name, text=text):
                path = self.write(name, text)
                for words in [[], ["--arch", "sm_90a"]]:
                    self.assertIn(f"{path}: {wanted}", self.complaint("prewarm", path, *words))
                self.assertIn(wanted, self.complaint("plan", path))
                named = self.write("names", FIRST + f"{path} --arch sm_90a\n")
                self.assertIn(f"names:2: {path}: {wanted}", self.complaint("prewarm", named))
        for name in ["none.manifest", "k.text"]:
            self.assertNotIn("first line", self.complaint("prewarm", name, "--arch", "sm_90a"))

    def test_commands_that_take_templates_alone_say_who_takes_manifests(self):
        path = self.write("list", FIRST + "k.cu\n")
        for command in ["plan", "lint"]:
            self.assertEqual(self.complaint(command, path),
                             f"jitcache: {path}: is a manifest, and here goes a template;"
                             " manifests are for the command line of jitcache prewarm")

    def test_every_wrong_line_is_told_up_to_twenty(self):
        lines = [f"k.cu --arch sm_90a --wrong{i}" for i in range(19)]
        done = self.wrong(FIRST + "\n".join(lines) + "\nnone.cu --arch sm_90a")
        self.assertEqual(done.err.count("jitcache: list:"), 20, done.err)
        self.assertNotIn("the rest", done.err)
        self.assertIn("20 lines are wrong; the rest of it was not read", self.wrong(
            FIRST + "\n".join(lines + lines)).err)
        done = self.wrong(FIRST + "none.cu\nk.cu --arch\nnone.cu\n")
        self.assertEqual(done.err.count("none.cu"), 1, done.err)  # one file, one message
        self.assertIn("list:3: --arch needs a value", done.err)

    def test_what_is_too_large_is_refused(self):
        text = FIRST + "#" * 60000 + "\n"
        lines = (1 << 24) // 60000
        self.assertIn("at most 16 MiB", self.wrong(text + ("#" * 59999 + "\n") * lines).err)
        self.wrong(FIRST + "k.cu\n" + ("#" * 59999 + "\n") * (lines - 1))  # just read: no arch

    def test_words_are_those_that_a_shell_would_make(self):
        for written, name in QUOTED:
            with self.subTest(written=written):
                path = self.write(name, PLAIN)
                self.write("list", FIRST + f"--param n=1 {written} --arch sm_90a")
                located = os.path.join(str(self.folder), name)
                self.assertEqual(self.items(self.folder / "list"),
                                 [f"{located} variants=1 sm_90a"])
                os.unlink(path)
        self.write("k.cu", PLAIN)
        path = self.write("list", FIRST + "k.cu --arch=sm_90a --param=n=1,2 --param 'text=unsigned "
                                  'int,\'"float"')
        self.assertEqual(len(self.items(path)), 1)
        self.assertIn("variants=4 ", self.items(path)[0])

    def test_files_are_found_from_the_manifest_s_folder(self):
        (self.folder / "sub" / "deep").mkdir(parents=True)
        kernel = self.write("sub/deep/k.cu", PLAIN)
        self.write("sub/list", FIRST + "deep/k.cu --param n=1\ndeep/../deep/k.cu --param n=2\n"
                   + f"{kernel} --param n=3")
        arch = ["--arch", "sm_90a"]
        self.assertEqual(self.items("sub/list", *arch, cwd=self.folder),
                         ["sub/deep/k.cu variants=1 sm_90a",
                          "sub/deep/../deep/k.cu variants=1 sm_90a",
                          f"{kernel} variants=1 sm_90a"])
        self.assertEqual(self.items("list", *arch, cwd=self.folder / "sub")[0],
                         "deep/k.cu variants=1 sm_90a")

    def test_of_a_link_files_are_found_beside_it_and_else_beside_what_it_leads_to(self):
        for name in ["links", "real"]:
            (self.folder / name).mkdir()
        self.write("real/list", FIRST + "both.cu --param n=1 --arch 9.0\n"
                   "there.cu --param n=2 --arch 9.0 --template-dir inc\n")
        (self.folder / "real" / "inc").mkdir()
        for name in ["links/both.cu", "real/both.cu", "real/there.cu"]:
            self.write(name, PLAIN)
        os.symlink("../real/list", self.folder / "links" / "list")
        self.assertEqual(self.items("links/list", cwd=self.folder),
                         ["links/both.cu variants=1 9.0",
                          f"{os.path.realpath(self.folder)}/real/there.cu variants=1 9.0"])
        os.unlink(self.folder / "real" / "there.cu")
        self.assertIn("links/list:3: links/there.cu: ",
                      self.complaint("prewarm", "links/list", cwd=self.folder))

    def test_line_ends_and_marks_of_other_systems_are_read(self):
        self.write("k.cu", PLAIN)
        text = FIRST + "\n# comment\n\tk.cu --param n=1,2 --arch sm_90a # and more\nk.cu --arch " \
            "sm_80 --param n=3"
        for raw in [text.encode(), text.replace("\n", "\r\n").encode(),
                    b"\xef\xbb\xbf" + text.encode(), (text + "\n\n").encode(),
                    text.replace("1\n", "1 \t\n").encode()]:
            with self.subTest(raw=raw):
                items = self.items(self.write("list", raw))
                self.assertEqual([item.split(" ", 1)[1] for item in items],
                                 ["variants=2 sm_90a", "variants=1 sm_80"])

    def test_architectures_of_the_command_line_are_for_lines_without(self):
        self.write("k.cu", PLAIN)
        path = self.write("list", FIRST + "k.cu --param n=1\nk.cu --param n=1 --arch sm_80 --arch "
                                          "sm_100\n")
        self.assertEqual([item.split(" ", 2)[2] for item in
                          self.items(path, "--arch", "sm_90a", "--arch", "sm_89")],
                         ["sm_90a sm_89", "sm_80 sm_100"])

    def test_the_same_on_two_lines_is_done_once(self):
        kernel = self.write("k.cu", PLAIN)
        os.symlink("k.cu", self.folder / "same.cu")
        path = self.write("list", FIRST + "\n".join([
            "k.cu --param n=1 --param text=int --range count=1:8 --without count --arch sm_80",
            "--range count=1:8 --arch sm_80 ./k.cu --without count --param text=int --param n=1",
            "same.cu --param n=1 --param text=int --range count=1:8 --without count --arch=sm_80",
            "k.cu --param n=1 --arch sm_90a --arch sm_80 --arch sm_90a",
            f"{kernel} --param n=1 --arch sm_80 --arch sm_90a",
            "k.cu --param n=1 --arch sm_90a",
            "k.cu --param n=1,2 --arch sm_90a",
        ]))
        self.assertEqual(len(self.items(path)), 4)
        words = [kernel, "--param", "n=1", "--arch", "sm_90a"]
        self.assertEqual(len(self.items(path, *words)), 4)
        self.assertEqual(len(self.items(path, path, *words)), 4)

    def test_the_generic_variant_alone_is_asked_for_by_a_word(self):
        kernel = self.write("k.cu", PLAIN.replace(", do_not_specialize: true, range: [1, 64]", ""))
        path = self.write("list", FIRST + "k.cu --param n=1,2 --generic --arch 9.0\n"
                                          "--generic --arch=9.0 k.cu --param=n=1,2\n")
        self.assertEqual(self.items(path), [f"{kernel} variants=2 9.0"])
        self.assertIn("--generic is for templates on the command line",
                      self.complaint("prewarm", path, "--generic"))
        self.assertEqual(self.items(kernel, "--arch", "9.0", "--generic", "--param", "n=3"),
                         [f"{kernel} variants=1 9.0"])
        # Without the word its number has to have a range.
        self.assertIn("--range count=LO:HI", self.complaint("prewarm", kernel, "--arch", "9.0",
                                                            "--param", "n=3"))

    def test_a_template_is_one_for_each_folder_of_its_includes(self):
        kernel = self.write("k.cu", PLAIN)
        for name in ["a", "b"]:
            (self.folder / name).mkdir()
        path = self.write("list", FIRST + "".join(
            f"k.cu --param n=1 --arch 9.0 {words}\n"
            for words in ["", "--template-dir a", "--template-dir=b", "--template-dir a"]))
        self.assertEqual(self.items(path), [f"{kernel} variants=1 9.0"] * 3)
        for words in [["--template-dir", "a"], ["--source", "0" * 32]]:
            self.assertIn(f"{words[0]} is for templates on the command line",
                          self.complaint("prewarm", path, *words))
        self.assertIn("--source is for one template, and there are 2", self.complaint(
            "prewarm", kernel, SILU, "--arch", "9.0", *words, "--param", "n=1"))

    def test_manifests_and_templates_go_together(self):
        kernel = self.write("k.cu", PLAIN)
        path = self.write("list", FIRST + "k.cu --param n=7")
        self.assertEqual(self.items(path, SILU, kernel, "--arch", "sm_90a", "--param", "n=1,2"),
                         [f"{SILU} variants=2 sm_90a", f"{kernel} variants=2 sm_90a",
                          f"{kernel} variants=1 sm_90a"])

    def test_settings_of_the_command_line_need_a_template_there(self):
        self.write("k.cu", PLAIN)
        path = self.write("list", FIRST + "k.cu --param n=7 --arch sm_90a")
        for words in [["--param", "n=1"], ["--range", "count=1:2"], ["--without", "count"]]:
            message = self.complaint("prewarm", path, *words)
            self.assertIn(f"{words[0]} is for templates on the command line", message)
        self.run_command("prewarm", path, ROPE, "--arch", "sm_90a", "--range", "num_tokens=1:8")

    def test_an_architecture_that_is_none_is_told_along_with_all_that_is_wrong(self):
        self.write("k.cu", PLAIN)
        path = self.write("list", FIRST + "k.cu --param n=1 --arch hopper\nk.cu --parm n=2\nk.cu "
                                          "--param n=3 --arch sm_90a --arch 9.0,10.0\n")
        done = self.run_command("prewarm", path, status=2)
        self.assertEqual([line.split(": ")[1] for line in done.err.splitlines()],
                         [f"{path}:2", f"{path}:3", f"{path}:4"])

    def test_an_architecture_that_the_compiler_lacks_is_told_with_its_line_and_once(self):
        self.write("k.cu", PLAIN)
        path = self.write("list", FIRST + "k.cu --param n=1 --arch sm_42\nk.cu --param n=2 --arch "
                                          "sm_90a --arch sm_42\nk.cu --param n=3 --arch sm_43\n")
        done = self.run_command("prewarm", path, status=2)
        self.assertEqual([line.split(": ")[1] for line in done.err.splitlines()],
                         [f"{path}:2", f"{path}:4"])
        self.assertNotIn("all", self.played.read_text())

    def test_a_pipe_is_never_taken_for_a_manifest(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        writer = os.open(pipe, os.O_RDWR)
        os.write(writer, FIRST.encode())
        try:
            self.assertIn("pipe", self.complaint("prewarm", pipe, "--arch", "sm_90a"))
        finally:
            os.close(writer)

    def test_whatever_is_in_one_is_read_or_told(self):
        kernel = PLAIN.encode()
        self.write("k.cu", kernel)
        good = (FIRST + "k.cu --param n=1 --arch sm_90a # x\n'k.cu' --range \"count=1:8\" "
                "--param=n=2 --arch=sm_80\nk\\.cu --without count --param n=3 --arch sm_90\n")
        seed = random.Random(11)
        for _ in range(400):
            data = bytearray(good.encode())
            for _ in range(seed.randint(1, 4)):
                at = seed.randrange(len(FIRST) - 2, len(data))
                data[at:at + seed.randint(0, 6)] = bytes(
                    seed.choice(b"\\'\"# \t\n\r\0-=k1\xff") for _ in range(seed.randint(0, 3)))
            done = subprocess.run([self.command, "prewarm", self.write("list", bytes(data))],
                                  env=self.env, capture_output=True, timeout=harness.LIMIT_S)
            self.assertIn(done.returncode, (0, 2), (bytes(data), done.stderr))
            self.assertEqual(done.returncode == 2, b"jitcache: " in done.stderr.replace(
                b"jitcache: note: ", b""), (bytes(data), done.stderr))

    def test_a_long_one_is_read_in_no_time(self):
        self.write("k.cu", PLAIN)
        lines = [f"k.cu --arch sm_90a --param n={i}" for i in range(20000)]
        path = self.write("list", FIRST + "\n".join(lines + lines))
        self.assertEqual(len(self.items(path)), 20000)


if __name__ == "__main__":
    harness.main()
