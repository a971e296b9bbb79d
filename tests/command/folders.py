"""A cache folder that cannot be used is told with the reason; one that is not there is empty."""
import json
import os
import random
import subprocess
import unittest

import harness
from harness import SILU

READERS = [["ls"], ["stats"], ["show", "abcd"]]
PREWARM = ["prewarm", SILU, "--arch", "sm_90a"]


class Folders(harness.Case):
    def refused(self, wanted):
        for words in READERS + [PREWARM, ["clear", "--yes"]]:
            with self.subTest(words=words):
                message = self.complaint(*words)
                self.assertIn(str(self.cache), message)
                self.assertRegex(message, wanted)

    def test_a_folder_that_is_not_there_is_an_empty_cache_and_stays_away(self):
        self.assertEqual(self.run_command("ls").out, "")
        self.assertIn("absent", self.run_command("stats").out)
        self.assertEqual(self.json("ls"), {"records": []})
        stats = self.json("stats")
        self.assertEqual((stats["cache"]["state"], stats["cache"]["records"]), ("absent", 0))
        self.assertIn("no record", self.complaint("show", "abcd"))
        self.assertEqual(self.json("clear", "--yes"), {"removed": 0, "bytes": 0})
        self.assertFalse(self.cache.exists())

    def test_the_option_wins_over_the_environment(self):
        other = self.folder / "other"
        self.assertEqual(self.json("stats", "--dir", other)["cache"]["dir"], str(other))

    def test_the_default_place_is_below_xdg_cache_home(self):
        del self.env["JITCACHE_DIR"]
        self.assertEqual(self.json("stats")["cache"]["dir"], str(self.folder / "xdg/jitcache"))

    def test_a_file_in_its_place_is_refused(self):
        self.cache.write_text("mine\n")
        self.refused("not a (folder|directory)|a file")
        self.assertEqual(self.cache.read_text(), "mine\n")

    def test_a_symbolic_link_is_refused(self):
        (self.folder / "real").mkdir(mode=0o700)
        self.cache.symlink_to("real")
        self.refused("link")

    def test_a_folder_that_others_can_write_is_refused(self):
        self.cache.mkdir()
        self.cache.chmod(0o777)
        self.refused("writ")

    @unittest.skipUnless(os.geteuid() == 0, "only root can make a foreign folder")
    def test_a_folder_of_somebody_else_is_refused(self):
        self.cache.mkdir(mode=0o700)
        os.chown(self.cache, 12345, 12345)
        self.refused("own")

    def test_a_folder_that_cannot_be_written_is_read_but_not_prewarmed(self):
        self.fill()
        self.cache.chmod(0o500)
        user = {}
        if os.geteuid() == 0:  # whom no mode keeps out
            user = {"user": 65534, "group": 65534, "extra_groups": []}
            for path in [self.folder, self.cache, *self.cache.iterdir()]:
                os.chown(path, 65534, 65534)
            if subprocess.run(["test", "-x", harness.COMMAND, "-a", "-r", SILU], **user).returncode:
                self.skipTest("the tree is not open to other users")
        stats = self.json("stats", **user)
        self.assertEqual(stats["total"]["variants"], 2)
        message = self.complaint(*PREWARM, **user)
        self.assertIn(str(self.cache), message)
        self.assertIn("cannot be written", message)

    @unittest.skipIf(subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode,
                     "no right to mount a small disk")
    def test_a_disk_that_gets_full_is_told_in_one_message(self):
        self.cache.mkdir(mode=0o700)
        small = 'mount -t tmpfs -o size=%s,mode=700 none "$JITCACHE_DIR" && exec "$@"'
        for size in ["8k", "64k"]:  # full at the template, full at the first variant
            done = subprocess.run(["unshare", "-m", "sh", "-c", small % size, "sh", harness.COMMAND,
                                   *PREWARM], env=self.env, capture_output=True, text=True,
                                  timeout=harness.LIMIT_S)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertRegex(done.stderr, r"\Ajitcache: .*No space left on device.*\n\Z")

    def test_a_record_that_fails_its_check_is_told(self):
        self.run_command(*PREWARM)
        segment = next(self.cache.glob("*.mdb"))
        data = bytearray(segment.read_bytes())
        key = self.json("ls", "--kind", "variant")["records"][0]["key"]
        at = data.find(b"\x7fELF")
        while at >= 0:
            data[at + 20] ^= 0xff
            at = data.find(b"\x7fELF", at + 1)
        segment.write_bytes(data)
        for words in [[key], [key, "--cubin", "-o", self.folder / "cubin"]]:
            self.assertIn("is damaged", self.complaint("show", *words))

    def test_a_record_behind_a_segment_that_is_not_read_is_told_in_one_message(self):
        self.fill()
        segment = next(self.cache.glob("*.mdb"))
        key = self.json("ls")["records"][0]["key"]
        segment.chmod(0o666)
        self.assertIn("jitcache ls lists them", self.complaint("show", key))

    def test_damage_is_told_and_repaired_by_prewarm(self):
        self.fill()
        segment = next(self.cache.glob("*.mdb"))
        os.truncate(segment, 8192)
        before = segment.read_bytes()
        self.assertIn("damaged", self.complaint("show", "abcd"))
        done = subprocess.run([harness.COMMAND, "stats", "--json"], env=self.env,
                              capture_output=True, text=True, timeout=harness.LIMIT_S)
        self.assertEqual((done.returncode, json.loads(done.stdout)["total"]["variants"]), (0, 0))
        self.assertRegex(done.stderr, r"\Ajitcache: warning: .*damaged.*\n\Z")
        self.assertEqual(segment.read_bytes(), before)
        done = subprocess.run([harness.COMMAND, *PREWARM], env=self.env, capture_output=True,
                              text=True, timeout=harness.LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("set aside", done.stderr)
        self.assertGreater(self.json("stats")["total"]["variants"], 0)

    def test_garbage_in_the_trees_ends_no_command(self):
        # LMDB trusts its pages: read in this process, such a segment is SIGBUS or SIGSEGV.
        self.fill("many", 3000)
        segment = next(self.cache.glob("*.mdb"))
        good = segment.read_bytes()
        noise = random.Random(1)
        for offset, size in [(12288, len(good)), (12288, 4096), (40960, 65536),
                             (noise.randrange(16384, len(good)) & -4096, 4096)]:
            bad = good[:offset] + noise.randbytes(min(size, len(good) - offset))
            bad += good[len(bad):]
            for words, status in [(["ls"], 0), (["stats"], 0), (["show", "abcd"], 2), (PREWARM, 0),
                                  ([*PREWARM, "--check"], 1), (["clear", "--yes"], 0)]:
                segment.write_bytes(bad)
                with self.subTest(words=words, offset=offset, size=size):
                    done = self.run_command(*words, status=status, remark="jitcache: ")
                    self.assertEqual(len(done.err.splitlines()), 1)
                    self.assertRegex(done.err, "damaged|set aside")
                for path in self.cache.glob("*.mdb*"):
                    path.unlink()

    def test_a_base_segment_that_is_not_used_is_told(self):
        base = self.folder / "base"
        self.env["JITCACHE_BASE"] = f"{self.folder}/none.mdb"
        warning = f"jitcache: warning: base segment {self.folder}/none.mdb is not used: "
        # Where there is no folder yet, that alone is no news.
        for _ in range(2):
            text = self.run_command("stats", remark=warning).out
            self.assertIn("0 of 1 segment in use\n", text)
            done = self.run_command(*PREWARM, "--check", status=1, remark=warning)
            self.assertEqual(len(done.err.splitlines()), 1)
            self.cache.mkdir(mode=0o700, exist_ok=True)
        self.run_command(*PREWARM, "--dir", base, remark=warning)
        self.env["JITCACHE_BASE"] = str(next(base.glob("*.mdb")))
        self.assertIn("1 of 1 segment in use\n", self.run_command("stats").out)
        self.run_command(*PREWARM, "--check")

    def test_a_cache_that_is_switched_off_is_told(self):
        self.env["JITCACHE_DISABLE"] = "1"
        for words in READERS + [PREWARM]:
            self.assertIn("JITCACHE_DISABLE", self.complaint(*words))

    def test_prewarm_refuses_a_cache_that_is_only_read(self):
        self.env["JITCACHE_READONLY"] = "1"
        self.assertIn("JITCACHE_READONLY", self.complaint(*PREWARM))
        self.assertFalse(self.cache.exists())

    def test_a_variable_that_does_not_parse_is_named(self):
        self.env["JITCACHE_MAX_BYTES"] = "plenty"
        for words in READERS:
            self.assertIn("JITCACHE_MAX_BYTES", self.complaint(*words))


if __name__ == "__main__":
    harness.main()
