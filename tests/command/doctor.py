"""The doctor tells what is there, what is missing and what to do, and changes nothing."""
import json
import os
import pathlib
import subprocess
import unittest

import harness

SIM = os.environ["JITCACHE_SIM_FOLDER"]


class Doctor(harness.Case):
    def setUp(self):
        super().setUp()
        # In front of a real driver, where there is one: a file that is none.
        none = self.folder / "none"
        none.mkdir()
        (none / "libcuda.so.1").write_bytes(b"")
        self.search = self.env.get("LD_LIBRARY_PATH", "")
        self.look_in(none)
        self.env.pop("CUDA_VISIBLE_DEVICES", None)

    def look_in(self, folder):
        self.env["LD_LIBRARY_PATH"] = f"{folder}:{self.search}"

    def simulate(self, **settings):
        self.look_in(SIM)
        for name, value in settings.items():
            self.env[f"JITCACHE_SIM_{name}"] = str(value)

    def examine(self, status, *words, **options):
        """What it finds, by topic: a list of (level, text). The text form says the same."""
        told = json.loads(self.run_command("doctor", "--json", *words, status=status,
                                           **options).out)
        text = self.run_command("doctor", *words, status=status, **options).out
        found = {}
        for finding in told["findings"]:
            found.setdefault(finding["topic"], []).append((finding["level"], finding["text"]))
            self.assertIn(" ".join(finding["text"].split()), " ".join(text.split()))
            self.assertRegex(text, rf"(?m)^{finding['level']} +{finding['topic']} ")
        levels = [finding["level"] for finding in told["findings"]]
        self.assertEqual(told["problems"], levels.count("problem"))
        self.assertEqual(told["warnings"], levels.count("warning"))
        self.assertEqual(bool(told["problems"]), bool(status))
        self.told = told
        return found

    def one(self, found, topic, level, *words):
        self.assertEqual([level], [each for each, _ in found[topic]], found[topic])
        for word in words:
            self.assertIn(word, found[topic][0][1])

    def test_a_file_to_record_into_has_to_be_writable_and_is_not_made(self):
        self.simulate(DEVICES=1, VERSION=99000)
        for name, level in [("engine.manifest", "ok"), ("nowhere/engine.manifest", "problem")]:
            path = f"{self.folder}/{name}"
            self.env["JITCACHE_RECORD"] = path
            found = self.examine(level == "problem")
            self.assertIn((level, True), [(each, f"JITCACHE_RECORD={path}" in text)
                                          for each, text in found["environment"]])
            self.assertEqual(self.told["environment"]["JITCACHE_RECORD"], path)
            self.assertFalse(os.path.exists(path))
        self.env.update(JITCACHE_RECORD="", JITCACHE_SEAL="open")
        self.assertIn(("ok", "JITCACHE_SEAL=open"), self.examine(0)["environment"])
        self.env.update(JITCACHE_RECORD="", JITCACHE_SEAL="frozn", JITCACHE_POLICY="generic")
        found = self.examine(1)["environment"]
        self.assertIn(("ok", "JITCACHE_POLICY=generic"), found)
        self.assertIn("JITCACHE_SEAL is 'frozn'", str(found))

    def test_a_machine_with_everything_has_no_problem(self):
        self.simulate(DEVICES=8, VERSION=99000)
        found = self.examine(0)
        for topic in ["nvrtc", "headers", "worker", "driver", "cache", "nvtx"]:
            self.assertIn(topic, found)
        self.one(found, "nvtx", "ok", "profiler")
        self.assertIsInstance(self.told["nvtx"], bool)
        self.one(found, "nvrtc", "ok", self.told["nvrtc"]["file"], "build ")
        self.one(found, "worker", "ok", self.told["worker"]["file"])
        self.one(found, "driver", "ok", "CUDA 99.0", "it runs what this NVRTC compiles")
        self.assertEqual(len(found["device"]), 8)
        for number, device in enumerate(self.told["devices"]):
            self.assertEqual((device["ordinal"], device["capability"], device["arch"]),
                             (number, "9.0", "sm_90a"))
        self.assertTrue(self.told["driver"]["runs_nvrtc"])
        self.assertIn("sm_90a", self.told["nvrtc"]["archs"])
        self.assertEqual(self.told["driver"]["file"], f"{SIM}/libcuda.so.1")
        self.assertFalse(self.cache.exists())

    def test_without_a_gpu_there_is_no_problem(self):
        found = self.examine(0)
        self.one(found, "driver", "warning", "no CUDA driver", "install the NVIDIA driver",
                 "prewarm and plan work, launching does not")
        self.assertEqual((self.told["driver"], self.told["devices"]), (None, []))
        self.simulate(DEVICES=0)
        self.one(self.examine(0), "driver", "warning", "finds no GPU", "launching does not")

    def test_a_driver_that_does_not_work_is_a_problem(self):
        self.simulate(INIT_ERROR=803)
        self.one(self.examine(1), "driver", "problem", "803", "restart the machine")

    def test_a_driver_that_is_too_old_for_the_compiler_is_a_problem(self):
        self.simulate(VERSION=12000)
        self.examine(0 if self.json("doctor", status=1)["nvrtc"]["version"] < "13" else 1)
        self.assertFalse(self.told["driver"]["runs_nvrtc"])
        text = next(each["text"] for each in self.told["findings"] if each["topic"] == "driver")
        for word in ["CUDA 12.0 at most", "update the driver", "JITCACHE_NVRTC"]:
            self.assertIn(word, text)

    def test_a_device_that_the_compiler_does_not_know_is_a_problem(self):
        self.simulate(DEVICES=2, CAPABILITY="9.0,3.5", VERSION=99000)
        found = self.examine(1)
        self.assertEqual([level for level, _ in found["device"]], ["ok", "problem"])
        self.assertIn("does not compile for 3.5", found["device"][1][1])
        self.assertIsNone(self.told["devices"][1]["arch"])

    def test_a_compiler_that_is_missing_is_a_problem(self):
        self.env["JITCACHE_NVRTC"] = "/nowhere/libnvrtc.so.13"
        found = self.examine(1)
        self.one(found, "nvrtc", "problem", "JITCACHE_NVRTC", "/nowhere/libnvrtc.so.13",
                 "name a libnvrtc.so of CUDA 12.4 or newer, or none")
        self.one(found, "worker", "ok")
        self.assertIsNone(self.told["nvrtc"])

    def test_a_worker_that_is_missing_is_a_problem(self):
        self.env["JITCACHE_WORKER"] = "/nowhere/worker"
        found = self.examine(1)
        self.one(found, "worker", "problem", "/nowhere/worker")
        self.one(found, "nvrtc", "warning", "not looked for")

    def test_verbose_lists_what_was_tried(self):
        out = self.run_command("doctor", "-v").out
        self.assertIn("tried:", out)
        for line in self.json("doctor")["nvrtc"]["tried"].split():
            self.assertIn(line, out)

    def test_a_folder_that_does_not_exist_stays_away(self):
        for origin, variables in [("JITCACHE_DIR", {}), ("XDG_CACHE_HOME", {"JITCACHE_DIR": ""}),
                                  ("HOME", {"JITCACHE_DIR": "", "XDG_CACHE_HOME": ""})]:
            found = self.examine(0, env={**self.env, **variables})
            self.one(found, "cache", "ok", "does not exist yet", f"by {origin}")
            self.assertEqual((self.told["cache"]["origin"], self.told["cache"]["state"]),
                             (origin, "absent"))
        found = self.examine(0, "--dir", self.folder / "other")
        self.one(found, "cache", "ok", "by --dir", str(self.folder / "other"))
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"none"})

    def test_a_cache_that_is_there_is_measured_and_not_changed(self):
        self.fill()
        before = {path.name: path.read_bytes() for path in self.cache.iterdir()}
        found = self.examine(0)
        self.one(found, "cache", "ok", str(self.cache), "of 4.0 GiB in 1 segment")
        self.assertIn("mode 0700", found["disk"][0][1])
        cache = self.told["cache"]
        self.assertEqual((cache["state"], cache["reason"], cache["segments"], cache["network"]),
                         ("read-write", None, 1, False))
        kernel = subprocess.run(["stat", "-f", "-c", "%a %S", self.cache], capture_output=True,
                                text=True, check=True).stdout.split()
        free = int(kernel[0]) * int(kernel[1])
        self.assertLess(abs(cache["free_bytes"] - free), 1 << 30)
        mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        types = {line.split(" - ")[1].split()[0] for line in mounts}
        # In a changed root what the root is part of need not be among the mounts.
        hidden = "/" not in {line.split()[4] for line in mounts}
        self.assertIn(cache["file_system"], {"?"} if hidden else types)
        self.assertEqual(before, {path.name: path.read_bytes() for path in self.cache.iterdir()})

    def test_a_folder_that_cannot_be_used_is_a_problem(self):
        self.cache.write_text("mine\n")
        self.one(self.examine(1), "cache", "problem", str(self.cache), "is a file")
        self.assertEqual(self.told["cache"]["state"], "off")
        self.assertIn("is a file", self.told["cache"]["reason"])
        self.env["JITCACHE_DIR"] = f"{self.cache}/below"
        self.one(self.examine(1), "cache", "problem", "Not a directory")
        self.env["JITCACHE_DIR"] = f"{self.folder}/open"
        (self.folder / "open").mkdir()
        (self.folder / "open").chmod(0o777)
        found = self.examine(1)
        self.one(found, "cache", "problem", "every user can write")
        self.assertIn("mode 0777", found["disk"][0][1])

    def test_a_folder_of_statistics_that_is_asked_for_has_to_be_one_to_publish_in(self):
        shared, link, file = (self.folder / name for name in ("shared", "link", "file"))
        shared.mkdir()
        shared.chmod(0o777)
        link.symlink_to(self.folder)
        file.write_text("")
        for path, level, wanted in [
                (self.folder / "new", "ok", "does not exist yet"), (self.folder, "ok", ""),
                (shared, "warning", "others can write it"), (link, "warning", "is no folder"),
                (file, "warning", "is no folder"),
                (self.folder / "a/b", "warning", f"make {self.folder}/a, or")]:
            self.env["JITCACHE_STATS"] = str(path)
            self.one(self.examine(0), "statistics", level, str(path), wanted)
        self.env["JITCACHE_STATS"] = "off"
        self.one(self.examine(0), "statistics", "ok", "says off")
        self.env["JITCACHE_STATS"] = ""
        self.assertNotIn("statistics", self.examine(0))
        self.assertFalse((self.folder / "new").exists())

    def test_a_user_without_a_home_is_told(self):
        for name in ["HOME", "XDG_CACHE_HOME", "JITCACHE_DIR"]:
            del self.env[name]
        self.one(self.examine(1), "cache", "problem", "neither XDG_CACHE_HOME nor HOME")
        self.assertIsNone(self.told["cache"]["dir"])

    def test_what_is_chosen_is_a_warning(self):
        self.env["JITCACHE_READONLY"] = "1"
        self.one(self.examine(0), "cache", "warning", "is not made", "JITCACHE_READONLY=1")
        self.fill()
        self.one(self.examine(0), "cache", "warning", "only read", "JITCACHE_READONLY=1")
        self.assertEqual(self.told["cache"]["state"], "read-only")
        self.assertIn("JITCACHE_READONLY=1", self.told["cache"]["reason"])
        self.env["JITCACHE_DISABLE"] = "1"
        self.one(self.examine(0), "cache", "warning", "JITCACHE_DISABLE=1")

    def test_a_budget_that_the_disk_does_not_have_is_a_warning(self):
        self.env["JITCACHE_MAX_BYTES"] = "15T"
        free = os.statvfs(self.folder)
        if free.f_bavail * free.f_frsize < 15 << 40:
            self.one(self.examine(0), "disk", "warning", "15.0 TiB more", "JITCACHE_MAX_BYTES")

    def test_base_segments_that_are_not_used_are_told(self):
        self.fill()
        base = next(self.cache.glob("*.mdb"))
        self.env.update(JITCACHE_DIR=f"{self.folder}/new",
                        JITCACHE_BASE=f"{base}:{self.folder}/gone.mdb")
        self.one(self.examine(0), "base", "warning", "gone.mdb is not used")
        self.assertEqual(self.told["base"], {"asked": 2, "used": 1})
        self.env["JITCACHE_BASE"] = str(base)
        self.one(self.examine(0), "base", "ok", "1 segment in use")
        # They do not hide that the folder is of no use.
        self.env["JITCACHE_DIR"] = str(base)
        self.one(self.examine(1), "cache", "problem", "is a file")

    def test_variables_are_listed_doubted_and_refused(self):
        self.env.update(JITCACHE_DRI="x", JITCACHE_COLOUR="x", JITCACHE_LOG="loud",
                        JITCACHE_MAX_BYTES="plenty", JITCACHE_TRUST="")
        found = self.examine(1)["environment"]
        self.assertIn(("ok", f"JITCACHE_DIR={self.cache}"), found)
        texts = "\n".join(f"{level} {text}" for level, text in found)
        self.assertIn("warning JITCACHE_DRI is set, which nothing reads; did you mean"
                      " JITCACHE_DIR?", texts)
        self.assertIn("warning JITCACHE_COLOUR is set, which nothing reads; jitcache(1)", texts)
        self.assertIn("problem JITCACHE_LOG is 'loud'", texts)
        self.assertIn("problem JITCACHE_MAX_BYTES is 'plenty'", texts)
        self.assertNotIn("TRUST", texts)
        self.assertEqual(self.told["environment"]["JITCACHE_LOG"], "loud")
        self.assertIsNotNone(self.told["nvrtc"])

    def test_everything_may_be_broken_at_once(self):
        self.cache.write_text("")
        self.simulate(INIT_ERROR=999)
        self.env.update(JITCACHE_WORKER="/nowhere", JITCACHE_NVRTC="/nowhere",
                        JITCACHE_BASE="/nowhere", JITCACHE_DISABLE="perhaps")
        del self.env["HOME"], self.env["XDG_CACHE_HOME"]
        found = self.examine(1)
        self.assertEqual([topic for topic, told in found.items()
                          if any(level == "problem" for level, _ in told)],
                         ["environment", "worker", "driver", "cache"])

    def test_what_a_name_holds_cannot_drive_the_terminal(self):
        self.env["JITCACHE_DIR"] = f"{self.folder}/\x1b[31m"
        self.assertNotIn("\x1b", self.run_command("doctor").out)

    def test_wrong_use_is_told(self):
        self.assertIn("takes no 'now'", self.complaint("doctor", "now"))


if __name__ == "__main__":
    harness.main()
