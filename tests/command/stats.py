"""What stats shows of statistics that are made up, see scene.c: the screen, its widths and colours,
storms, times, watching, metrics."""
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import time
import unittest
from pathlib import Path

import harness

try:
    from prometheus_client import parser
except ImportError:
    parser = None

S, MS = 1_000_000_000, 1_000_000
NOW = 1_796_047_450_250  # 2026-11-30T14:04:10.250Z
MINUTE = 60_000

COUNTS = {"launches", "generic_launches", "missed_launches", "captured_generic", "misses",
          "unaligned", "stalls", "stall_ns", "disk_hits", "saved_ns", "compiles", "compile_ns",
          "background_ns", "queue_ns", "waits", "wait_ns", "loads", "load_ns", "held_ns",
          "loaded_bytes", "failures", "out_of_memory", "queued", "upgraded", "storms"}
ODD = 'a "b" \u00fc\u6f22\x1b[2J\n\u202e'

REPLACEMENT = "- {name: num_tokens, type: i32, range: [1, 8192], facets: [{div: 16}, one]}"
TOKENS = {"name": "num_tokens", "states": 47,
          "examples": ["value: 1", "value: 2", "value: 3"], "file": "templates/gemm.cu",
          "line": 12, "replacement": REPLACEMENT, "advice": "It is a raw count."}
GEMM = {"name": "gemm", "total": {"launches": 803_000, "compiles": 47, "compile_ns": 38 * S,
                                  "background_ns": 31 * S, "stalls": 3, "stall_ns": 1200 * MS},
        "kernels": 1, "variants": 50, "asked": 47, "first_asked_ms": NOW - 3 * MINUTE,
        "last_asked_ms": NOW - 3000, "varying": [TOKENS]}
TOTAL = {"launches": 1_204_331, "misses": 449, "missed_launches": 449,
         "generic_launches": 210, "captured_generic": 4,
         "stalls": 3, "stall_ns": 1200 * MS, "disk_hits": 391, "saved_ns": 88 * S, "compiles": 58,
         "compile_ns": 41_200 * MS, "queue_ns": 3100 * MS, "waits": 12, "wait_ns": 3100 * MS,
         "loads": 449, "load_ns": 3100 * MS, "held_ns": 400 * MS, "loaded_bytes": 12 << 20,
         "failures": 1}
VLLM = {"pid": 4711, "command": "vllm", "host": "gpu-7", "start_ms": NOW - 60 * MINUTE,
        "seen_ms": NOW, "running": True, "seal": "open"}
BUSY = {"now_ms": NOW, "ended": 17, "total": TOTAL, "processes": [VLLM], "kernels": [GEMM]}


def busy(**changes):
    return dict(BUSY, **changes)


def unpainted(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")


class Scenic(harness.Case):
    command = harness.SCENIC

    def setUp(self):
        super().setUp()
        self.asked = self.folder / "asked"
        self.env.update(JITCACHE_SCENE=str(self.folder / "scene"),
                        JITCACHE_SCENE_ASKED=str(self.asked), TZ="UTC")
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS"]:
            self.env.pop(name, None)
        self.scene(BUSY)

    def scene(self, *stages):
        self.write("scene", json.dumps(stages))

    def shown(self, *words, **options):
        return self.run_command("stats", *words, **options).out

    def line(self, text, label):
        found = re.findall(rf"(?m)^ *{re.escape(label)}: +(.*)$", text)
        self.assertEqual(len(found), 1, f"{label} in\n{text}")
        return found[0]

    def lacks(self, text, *labels):
        for label in labels:
            self.assertNotRegex(text, rf"(?m)^ *{re.escape(label)}:")


class Summary(Scenic):
    def test_figures_say_what_they_are_a_share_of(self):
        text = self.shown()
        for label, wanted in [
                ("Launches", "1,204,331"),
                ("memory hits", "1,203,882 / 1,204,331  (99.96 %)"),
                ("stand-ins", "210 / 1,204,331   (0.02 %)  served by another variant"),
                ("in graphs", "4                         stand-ins that graphs keep"),
                ("stalls", "3                         launches that waited, 1.2 s in all"),
                ("Variants", "449"),
                ("disk hits", "391 /       449  (87.08 %)  88.0 s of compiling saved"),
                ("compiles", "58 /       449  (12.92 %)  41.2 s spent, after 3.1 s in the queue"),
                ("waits for others", "12                         3.1 s, while they compiled the"
                                     " same"),
                ("failures", "1                         jitcache ls --kind failure lists them"),
                ("Loads", "449                         3.1 s for 12.0 MiB; launches held up"
                          " 400 ms"),
                ("Processes", "1 running, 17 ended"),
                ("Since", "the beginning"),
                ("Cache", f"{self.cache} (absent)")]:
            self.assertEqual(self.line(text, label), wanted)

    def test_what_is_nothing_is_left_out_unless_everything_is_asked_for(self):
        zero = ["stand-ins", "in graphs", "stalls", "Variants", "disk hits", "compiles",
                "waits for others", "failures", "out of memory", "Loads", "After the seal",
                "integrity"]
        self.scene(busy(total={"launches": 5}, kernels=[]))
        self.lacks(self.shown(), *zero, "less aligned")
        self.lacks(self.shown("-v"), *zero, "less aligned")
        text = self.shown("-vv")
        for label in zero + ["less aligned", "background", "storms stopped", "safe points"]:
            self.assertRegex(text, rf"(?m)^ *{label}:", text)

    def test_a_share_that_is_not_all_never_shows_as_all(self):
        for misses, wanted in [(0, "(100 %)"), (1, "(99.99 %)"), (999_999_999, "(0.01 %)"),
                               (10**9, None), (2 * 10**9, None)]:
            self.scene(busy(total={"launches": 10**9, "missed_launches": misses}))
            if wanted:
                self.assertIn(wanted, self.line(self.shown(), "memory hits"))
            else:
                self.lacks(self.shown(), "memory hits")

    def test_less_aligned_calls_are_neither_hits_nor_misses(self):
        self.scene(busy(total={"launches": 100, "misses": 3, "unaligned": 7, "missed_launches": 10},
                        processes=[dict(VLLM, seal="log")],
                        sealed={"launches": 50, "unaligned": 7}))
        text = self.shown("-v")
        self.assertEqual(self.line(text, "memory hits"), "90 / 100  (90.00 %)")
        self.assertIn("kinds of call that a stand-in serves", self.line(text, "less aligned"))
        self.assertEqual(self.line(text, "After the seal"),
                         "nothing was missed, compiled or loaded")

    def test_what_came_after_the_seal_is_told(self):
        self.lacks(self.shown(), "After the seal")
        self.scene(busy(processes=[dict(VLLM, seal="log")]))
        self.assertEqual(self.line(self.shown(), "After the seal"),
                         "nothing was missed, compiled or loaded")
        self.scene(busy(sealed={"launches": 9, "misses": 3, "loads": 2, "held_ns": 2 * MS}))
        text = self.shown()
        self.assertEqual(self.line(text, "After the seal"), "the warm-up has left something out")
        self.assertRegex(text, r"\n  misses: +3 +kinds of call without their variant\n"
                               r"  loads: +2 +launches held up 2 ms\n")

    def test_a_cache_that_is_not_well_is_told(self):
        self.lacks(self.shown(), "integrity")
        self.scene(busy(process_total={"cache_corrupt": 2, "cache_dropped": 1}))
        self.assertEqual(self.line(self.shown(), "integrity"),
                         "2 failed their check, 1 writes dropped, 0 timeouts")

    def test_where_nothing_ran_people_are_told_how_it_starts(self):
        self.scene({"now_ms": NOW})
        text = self.shown()
        self.lacks(text, "Launches", "Processes", "Storms")
        self.assertIn("Nothing was launched or compiled with this cache yet.", text)
        self.scene({"now_ms": NOW, "since_ms": NOW - MINUTE})
        self.assertIn("Nothing was launched or compiled since then.", self.shown("--since", "1m"))
        self.scene({"now_ms": NOW, "zeroed_ms": NOW - 5000})
        text = self.shown()
        self.assertEqual(self.line(text, "Since"), "14:04:05, 5 s ago, when it was set to zero")
        self.assertIn("Nothing was launched or compiled since then.", text)

    def test_what_the_cache_holds_is_told_once_and_where_it_is_asked_for_or_all_there_is(self):
        self.fill("many", 10)
        self.scene(busy(kernels=[dict(GEMM, name="plain_kernel")]))
        self.assertNotIn("CACHED", self.shown())
        text = self.shown("-v")
        self.assertRegex(text, r"(?m)^plain_kernel  0 +803,000 .* 50$")
        self.assertRegex(text, r"(?m)^plain_kernel +11 +1 +1 +sm_90a ")
        self.assertEqual(text.count("CACHED"), 1)
        for changes, is_all in [({}, True), ({"since_ms": NOW - MINUTE}, False),
                                ({"zeroed_ms": NOW - MINUTE}, False),
                                # It warms up.
                                ({"processes": [VLLM], "total": {"compiles": 3}}, False)]:
            self.scene({"now_ms": NOW, **changes})
            self.assertEqual("CACHED" in self.shown(), is_all, changes)

    def test_the_tail_of_timed_launches_is_shown(self):
        self.assertNotIn("TAIL", self.shown("-v"))
        samples = [0] * 48
        samples[4], samples[10], samples[47] = 990, 9, 1
        self.scene(busy(kernels=[dict(GEMM, samples=samples)]))
        self.assertRegex(self.shown("-v"), r"(?m)^TAIL, AT MOST .*\ngemm +0 +1,000  400 ns +3\.2 us"
                                           r" +> \S+ \S+ +> \S+ \S+$")

    def test_processes_are_listed(self):
        self.assertRegex(self.shown("-v"), r"(?m)^PID .*\n4711 +vllm +gpu-7 +13:04:10 +open +0$")

    def test_what_could_not_be_read_is_a_warning(self):
        self.scene(busy(trouble="a: of another version\nb: damaged"))
        done = self.run_command("stats", remark="jitcache: warning: a: of another version\n"
                                                "    b: damaged\n")
        self.assertIn("Launches", done.out)


def barrier(rank, ranks=8, text="tp open", **changes):
    return {"time_ms": NOW - 3 * MINUTE, "kind": "barrier", "device": -1, "pid": 4100 + rank,
            "text": text, "rank": rank, "ranks": ranks, "elapsed_ns": 4200 * MS,
            "waited_ns": 400 * MS, "count": 10, "compile_ns": 3 * S, **changes}


SLOW = barrier(3, count=31, compile_ns=3900 * MS, waited_ns=5 * MS)
EIGHT = [barrier(rank) for rank in range(8) if rank != 3] + [SLOW]


class Ranks(Scenic):
    def headline(self, events, *words, **changes):
        self.scene(busy(events=events, **changes))
        return re.findall(r"(?m)^group.*$", self.shown(*words))

    def rows(self, text):
        found = re.findall(r"(?m)^ *\d+  \d+ .*(?:open|failed|given up)$", text)
        return [line.split() for line in found]

    def test_who_compiled_while_others_waited_is_told_rank_by_rank(self):
        place = dict(VLLM, pid=4103, group="tp", rank=3, ranks=8)
        self.scene(busy(events=EIGHT, processes=[place]))
        self.assertIn("""
group tp: 8 ranks, open after 4.2 s, 3 min ago; rank 3 compiled 31 (3.9 s) while others waited up\
 to 400 ms
RANK  PROCESS     COMPILED  COMPILING  WORKED  WAITED  RESULT
   0  4100 ended        10      3.0 s   3.8 s  400 ms  open
   1  4101 ended        10      3.0 s   3.8 s  400 ms  open
   2  4102 ended        10      3.0 s   3.8 s  400 ms  open
   3  4103              31      3.9 s   4.2 s    5 ms  open
   4  4104 ended        10      3.0 s   3.8 s  400 ms  open
""", self.shown())

    def test_without_ranks_there_is_no_word_of_them(self):
        self.scene(busy(events=[{"time_ms": NOW, "kind": "seal", "text": "log"}]))
        text = self.shown("-v")
        self.assertNotRegex(text, "(?i)group|rank|barrier")

    def test_what_others_waited_for_is_told_by_what_it_did(self):
        one = [barrier(0, 2, waited_ns=2 * S)]
        for other, wanted in [
                (barrier(1, 2, waited_ns=0, elapsed_ns=2200 * MS),
                 "rank 1 came 2.0 s after the first; others waited up to 2.0 s"),
                (barrier(1, 2, waited_ns=0, elapsed_ns=4200 * MS),
                 "rank 1 compiled 10 (3.0 s) while others waited up to 2.0 s"),
                (barrier(1, 2, waited_ns=0, elapsed_ns=4200 * MS, count=0, compile_ns=0),
                 "rank 1 worked for 4.2 s while others waited up to 2.0 s")]:
            self.assertEqual(self.headline(one + [other]),
                             [f"group tp: 2 ranks, open after 4.2 s, 3 min ago; {wanted}"])
        # All waited alike: for none of them.
        self.assertEqual(self.headline(one + [barrier(1, 2, waited_ns=2 * S)]),
                         ["group tp: 2 ranks, open after 4.2 s, 3 min ago"])
        self.assertEqual(self.headline([barrier(0, 1, waited_ns=0, text=" open", time_ms=NOW)]),
                         ["group: 1 rank, open after 4.2 s, just now"])

    def test_a_barrier_that_did_not_open_says_which_rank_had_another_reason(self):
        alike = [barrier(rank, text="tp a peer failed") for rank in range(8)]
        self.assertEqual(self.headline(alike), ["group tp: 8 ranks, not open after 4.2 s, 3 min"
                                                " ago; a peer failed"])
        other = alike[:5] + [barrier(5, text="tp out of memory")] + alike[6:]
        self.assertEqual(self.headline(other), ["group tp: 8 ranks, not open after 4.2 s, 3 min"
                                                " ago; rank 5: out of memory"])
        lost = [barrier(rank) for rank in range(7)] + [barrier(7, text="tp a peer failed")]
        self.assertEqual(self.headline(lost), ["group tp: 8 ranks, open for 7 after 4.2 s, 3 min"
                                               " ago; rank 7 was given up"])
        self.assertEqual(self.headline(lost[:6]), ["group tp: 8 ranks, open for 6 after 4.2 s, 3"
                                                   " min ago; ranks 6 and 7 told nothing"])
        self.assertEqual(self.headline([lost[1], lost[4]]),
                         ["group tp: 8 ranks, open for 2 after 4.2 s, 3 min ago; ranks 0, 2, 3 and"
                          " 5 to 7 told nothing"])
        self.assertEqual(self.headline([barrier(0, 1, text="tp")]),
                         ["group tp: 1 rank, not open after 4.2 s, 3 min ago; it is not known why"])

    def test_the_newest_warm_up_of_a_group_is_shown(self):
        def older(event, ms, **changes):
            return dict(event, time_ms=event["time_ms"] - ms, **changes)
        # Called again at once, started anew, started anew with fewer ranks, a rank lost long ago.
        again = [older(each, 10, count=77) for each in EIGHT] + EIGHT
        anew = [older(each, 5 * MINUTE, pid=1) for each in EIGHT] + EIGHT
        more = [barrier(rank, 16) for rank in range(16)] + EIGHT
        lost = [older(SLOW, MINUTE)] + EIGHT[:-1]
        for events, count in [(again, 8), (anew, 8), (more, 8), (lost, 7)]:
            self.scene(busy(events=events))
            told, = self.json("stats")["statistics"]["groups"]
            self.assertEqual(told["ranks"], 8)
            self.assertEqual(len(told["told"]), count)
            self.assertEqual({each["pid"] for each in told["told"]} - set(range(4100, 4108)), set())
            self.assertNotIn(77, [each["compiled"] for each in told["told"]])

    def test_ranks_that_fail_one_after_another_are_of_one_warm_up(self):
        events = [barrier(0, 2, elapsed_ns=0, time_ms=NOW - 1500, text="tp a peer failed"),
                  barrier(1, 2, elapsed_ns=0, time_ms=NOW, text="tp timed out")]
        self.assertRegex(self.headline(events)[0], "^group tp: 2 ranks, not open after 0 us")

    def told(self, events, **changes):
        self.scene(busy(events=events, **changes))
        group, = self.json("stats")["statistics"]["groups"]
        return {each["rank"]: each for each in group["told"]}

    def test_events_of_a_warm_up_are_told_by_what_they_say_of_it(self):
        # Slow to tell, one after another in a moment, and mixed.
        first = [barrier(rank, 4, group_ms=NOW - 5000, count=1, time_ms=NOW - 4000 + 900 * rank)
                 for rank in range(4)]
        second = [barrier(rank, 4, group_ms=NOW - 4999, count=2, time_ms=NOW - 4000 + 900 * rank)
                  for rank in range(4)]
        for events in (first + second, second + first, first[2:] + second + first[:2]):
            told = self.told(events)
            self.assertEqual([told[rank]["compiled"] for rank in range(4)], [2] * 4)
        # Clocks of hosts may differ.
        apart = [dict(each, time_ms=NOW - 9 * MINUTE * each["rank"]) for each in second]
        self.assertEqual(len(self.told(apart)), 4)

    def test_a_rank_that_was_given_up_does_not_hide_that_the_others_opened(self):
        good = [barrier(rank, 4, group_ms=NOW - 5 * MINUTE) for rank in range(3)]
        late = barrier(3, 4, text="tp another rank failed")
        asleep = dict(late, time_ms=NOW, elapsed_ns=4 * MINUTE * MS)
        awake = dict(late, time_ms=NOW, elapsed_ns=5 * MS)
        said = dict(asleep, group_ms=NOW - 5 * MINUTE)
        runs = {"processes": [dict(VLLM, pid=4100, start_ms=NOW - 60 * MINUTE)]}
        wanted = ["group tp: 4 ranks, open for 3 after 4.2 s, 3 min ago; rank 3 was given up"]
        for events, changes in [(good + [asleep], {}), (good + [said], {}),
                                (good + [asleep, awake], runs), (good + [awake], runs),
                                (good + [awake, dict(awake, time_ms=NOW + 1)], runs)]:
            self.assertEqual(self.headline(events, **changes), wanted)
            self.assertRegex(self.shown(), r"(?m)^ +3  4103 ended .*  given up$")
            told = self.told(events, **changes)
            self.assertEqual([told[rank]["given_up"] for rank in range(4)], 3 * [False] + [True])
        # Those that are gone have not gone on without it.
        self.assertEqual(self.headline(good + [awake]),
                         ["group tp: 4 ranks, not open after 5 ms, just now; another rank failed;"
                          " ranks 0 to 2 told nothing"])

    def test_one_that_had_not_all_ranks_replaces_the_one_before(self):
        good = [barrier(rank, 3, group_ms=NOW - 5 * MINUTE) for rank in range(3)]
        failed = [barrier(rank, 3, text="tp timed out", time_ms=NOW + rank, waited_ns=MINUTE * MS,
                          elapsed_ns=MINUTE * MS) for rank in range(2)]
        runs = [dict(VLLM, pid=4100 + rank, start_ms=NOW - 60 * MINUTE) for rank in range(3)]
        self.assertEqual(self.headline(good + failed, processes=runs),
                         ["group tp: 3 ranks, not open after 60.0 s, just now; timed out; rank 2"
                          " told nothing"])
        # Given up, and called again at once.
        again = [dict(failed[0], text="tp not ready", elapsed_ns=MS, time_ms=NOW - 5 * MINUTE)]
        good = [dict(each, elapsed_ns=2 * MINUTE * MS) for each in good]
        self.assertEqual(len(self.told(again + good)), 3)

    def test_what_was_not_worth_waiting_for_is_not_named(self):
        def two(elapsed, waited, late, text="tp open", **more):
            return [barrier(0, 2, text=text, elapsed_ns=elapsed * MS, waited_ns=waited * MS,
                            **{"count": 0, "compile_ns": 0, **more}),
                    barrier(1, 2, text=text, elapsed_ns=(elapsed - late) * MS, waited_ns=0,
                            **{"count": 2, "compile_ns": 32 * S, **more})]
        for events, wanted in [
                (two(24, 12, 12), ""), (two(24, 3, 3, "tp ranks differ", count=0), ""),
                (two(16600, 16600, 57),
                 "; rank 1 compiled 2 (32.0 s) while others waited up to 16.6 s"),
                (two(400, 300, 250), "; rank 1 came 250 ms after the first; others waited up to"
                                     " 300 ms"),
                (two(9000, 2000, 1500, count=0), "; rank 1 came 1.5 s after the first; others"
                                                 " waited up to 2.0 s")]:
            self.scene(busy(events=events))
            line = re.search(r"(?m)^group.*(\n  .*)*", self.shown())[0].replace("\n ", "")
            wanted = wanted or ("; ranks differ" if "differ" in events[0]["text"] else "")
            self.assertRegex(line, re.escape(f", 3 min ago{wanted}") + "$")

    def test_several_groups_are_shown_the_newest_first(self):
        events = [barrier(0, 1, text=f"g{index} open", time_ms=NOW - 6000 + index)
                  for index in range(5)]
        names = [line.split(":")[0] for line in self.headline(events)]
        self.assertEqual(names, ["group g4", "group g3", "group g2"])
        self.assertIn("\nand 2 older groups; -v shows them\n", self.shown())
        self.assertEqual(len(self.headline(events, "-v")), 5)

    def test_of_many_ranks_those_are_shown_that_stand_out(self):
        events = [barrier(rank, 256, waited_ns=(300 + rank) * MS) for rank in range(256)]
        events[99]["text"] = "tp a peer failed"
        events[120].update(compile_ns=9 * S)
        events[200].update(waited_ns=7 * MS)
        self.scene(busy(events=events))
        text = self.shown()
        shown = [int(row[0]) for row in self.rows(text)]
        self.assertEqual(len(shown), 8)
        self.assertEqual(shown, sorted(shown))
        self.assertLessEqual({0, 1, 99, 120, 200, 255}, set(shown))
        self.assertIn("\nand 248 more, which waited 304 ms to 554 ms; -v shows them\n", text)
        self.assertEqual(len(self.rows(self.shown("-v"))), 256)

    def test_a_process_runs_as_a_rank_only_if_it_is_that_rank(self):
        at = NOW - 60 * MINUTE
        for process, runs in [({"pid": 4100}, True), ({"pid": 4101}, False),
                              ({"pid": 4100, "running": False}, False),
                              ({"pid": 4100, "start_ms": NOW - MINUTE}, False),
                              ({"pid": 4100, "group": "tp", "rank": 0, "ranks": 8}, True),
                              ({"pid": 4100, "group": "tp", "rank": 1, "ranks": 8}, False),
                              ({"pid": 4100, "group": "pp", "rank": 0, "ranks": 8}, False)]:
            self.scene(busy(events=[barrier(0)],
                            processes=[{**VLLM, "start_ms": at, **process}]))
            told = self.json("stats")["statistics"]["groups"][0]["told"][0]
            self.assertEqual(told["running"], runs, process)

    def test_processes_say_which_rank_they_are(self):
        place = dict(VLLM, group="tp", rank=3, ranks=8)
        self.scene(busy(processes=[place, dict(VLLM, pid=5), dict(VLLM, pid=6, ranks=2)]))
        text = self.shown("-v")
        self.assertRegex(text, r"(?m)^PID .* GROUP +RANK  SAFE POINTS\n4711 .* tp +3 of 8 +0$")
        self.assertRegex(text, r"(?m)^5 .* open  - +- +0$")
        self.assertRegex(text, r"(?m)^6 .* open  - +0 of 2 +0$")
        self.scene(busy(processes=[place]))
        self.assertEqual(self.line(self.shown("--pid", "4711"), "Process"),
                         "4711 vllm on gpu-7, since 13:04:10, rank 3 of 8 in group tp")

    def test_barriers_and_waits_in_them_are_counted(self):
        self.scene(busy(process_total={"barriers": 8, "barrier_wait_ns": 9 * S}))
        self.assertRegex(self.line(self.shown("-v"), "barriers"),
                         "^8 +warm-ups of ranks, which waited 9.0 s for others$")
        self.lacks(self.shown(), "barriers")

    def test_names_and_numbers_of_a_damaged_file_do_no_harm(self):
        for which in ("odd", "wrong", "ranks"):
            options = {"remark": "warning" if which == "odd" else "", "env": self.scenic(which)}
            for words in [[], ["-v"]]:
                done = self.run_command("stats", *words, **options)
                self.assertNotRegex(done.out, "[\x00-\x08\x0b-\x1f\x7f\u202e]")
            self.assertTrue(self.json("stats", **options)["statistics"]["groups"])
            self.assertIn("# EOF", self.run_command("stats", "--openmetrics", **options).out)


class Storms(Scenic):
    def storm(self, name, lost_s, **changes):
        return dict(GEMM, name=name, total={"compiles": 47, "compile_ns": 90 * S,
                                            "background_ns": lost_s * S}, **changes)

    def test_a_storm_names_the_argument_and_the_line_to_write(self):
        self.assertIn(f"""
Storms: 1

gemm on device 0
  calls asked for 47 unplanned variants in 3 min, 15.9 a minute; it goes on
  47 variants were made, planned ones included
  about 32.2 s lost: launches waited 1.2 s, and 31.0 s of compiling in the background
  argument num_tokens took 47 values: 1, 2, 3, ...
    at templates/gemm.cu:12 write
      {REPLACEMENT}
    It is a raw count.
""", self.shown())

    def test_where_nothing_varies_there_is_no_storm(self):
        self.scene(busy(kernels=[dict(GEMM, varying=[])]))
        self.assertNotIn("Storms", self.shown())

    def test_the_one_that_costs_most_comes_first_and_few_are_shown(self):
        storms = [self.storm(f"k{i}", [3, 9, 1, 7, 5, 2, 8][i]) for i in range(7)]
        self.scene(busy(kernels=storms))
        names = re.findall(r"(?m)^(k\d) on device", self.shown())
        self.assertEqual(names, ["k1", "k6", "k3", "k4", "k0"])
        self.assertIn("and 2 more; -v shows them", self.shown())
        names = re.findall(r"(?m)^(k\d) on device", self.shown("-v"))
        self.assertEqual(names, ["k1", "k6", "k3", "k4", "k0", "k5", "k2"])

    def test_a_compile_is_lost_once_and_only_where_a_call_asked_for_it(self):
        for total, wanted in [
                # Of a warm-up.
                ({}, "no time lost"),
                ({"background_ns": 10 * S},
                 "about 10.0 s lost to compiling in the background; no launch waited"),
                # Under policy `wait` it is what the launches waited for.
                ({"stalls": 3, "stall_ns": 2 * S}, "about 2.0 s lost: launches waited that long")]:
            self.scene(busy(kernels=[dict(GEMM, asked=10, total={
                "compiles": 30, "disk_hits": 10, "compile_ns": 40 * S, **total})]))
            self.assertIn(f"  {wanted}\n", self.shown())

    def test_values_states_and_parameters_are_told_apart(self):
        for changes, wanted in [
                ({"states": 1024, "more": True}, "argument num_tokens took over 1,024 values: 1, "),
                ({"examples": ["div: 16", "one"], "states": 2},
                 "argument num_tokens took 2 states: div: 16, one\n"),
                ({"examples": []}, "argument num_tokens took 47 states\n"),
                ({"is_parameter": True, "examples": ["64"], "states": 1},
                 "parameter num_tokens took 1 value: 64\n"),
                ({"stopped": True}, "the storm guard has stopped it"),
                ({"file": "", "line": 0}, "in its description write\n      - {name")]:
            self.scene(busy(kernels=[dict(GEMM, varying=[dict(TOKENS, **changes)])]))
            self.assertIn(wanted, self.shown())
        self.scene(busy(kernels=[dict(GEMM, total={"launches": 5})]))
        self.assertIn("\n  none was made\n", self.shown())
        self.scene(busy(kernels=[dict(GEMM, varying=[dict(TOKENS, advice="Do it; or do not.")])]))
        self.assertIn("    Do it;\n    or do not.\n", self.shown())
        self.scene(busy(kernels=[dict(GEMM, varying=[dict(TOKENS, replacement="")])]))
        self.assertNotIn("write\n", self.shown())
        self.assertIn("    It is a raw count.\n", self.shown())

    def test_a_rate_is_told_where_it_says_more_than_the_number(self):
        for first, last, per_minute, wanted in [
                (NOW - 1000, NOW - 1000, 564, "calls asked for 47 unplanned variants; it goes on"),
                (NOW - 3400, NOW, 564,
                 "calls asked for 47 unplanned variants in 3.4 s; it goes on"),
                (NOW - 10 * MINUTE, NOW - 5 * MINUTE, 9.4,
                 "calls asked for 47 unplanned variants in 5 min, 9.4 a minute; the last one 5 min"
                 " ago"),
                (NOW - 10_000, NOW, 282,
                 "calls asked for 47 unplanned variants in 10.0 s, 282 a minute; it goes on"),
                (NOW - 180 * MINUTE, NOW, 47 / 180,
                 "calls asked for 47 unplanned variants in 3.0 h; it goes on"),
                # A clock that was set back.
                (NOW, NOW + MINUTE, 47, "47.0 a minute; it goes on"),
                (NOW + MINUTE, NOW, 564, "calls asked for 47 unplanned variants; it goes on")]:
            self.scene(busy(kernels=[dict(GEMM, first_asked_ms=first, last_asked_ms=last)]))
            self.assertIn(wanted, self.shown())
            told, = self.json("stats")["statistics"]["storms"]
            self.assertAlmostEqual(told["per_minute"], per_minute)

    def test_it_goes_on_only_while_a_process_runs_that_has_such_a_kernel(self):
        for changes, wanted in [({}, "the last one 3 s ago"),
                                ({"last_asked_ms": NOW}, "the last one just now"),
                                ({"kernels": 2}, "it goes on"),
                                ({"kernels": 2, "last_asked_ms": NOW - MINUTE},
                                 "the last one 1 min ago")]:
            self.scene(busy(kernels=[dict(GEMM, **{"kernels": 0, **changes})]))
            self.assertIn(f" a minute; {wanted}\n", self.shown())
            told, = self.json("stats")["statistics"]["storms"]
            self.assertEqual(told["goes_on"], wanted == "it goes on")

    def on_devices(self, *arguments, **changes):
        """A storm of gemm with one of these arguments on each device."""
        self.scene(busy(kernels=[dict(GEMM, device=device, varying=[argument], **changes)
                                 for device, argument in enumerate(arguments)]))

    def test_a_kernel_on_several_devices_is_one_storm(self):
        self.on_devices(TOKENS, dict(TOKENS, stopped=True), kernels=0)
        self.assertIn(f"""
Storms: 1

gemm on 2 devices
  calls asked for 94 unplanned variants in 3 min, 31.9 a minute; the last one 3 s ago
  94 variants were made, planned ones included
  about 64.4 s lost: launches waited 2.4 s, and 62.0 s of compiling in the background
  argument num_tokens took 47 values: 1, 2, 3, ...
    the storm guard has stopped it: it is not specialized any more
    at templates/gemm.cu:12 write
      {REPLACEMENT}
    It is a raw count.
""", self.shown())
        told, = self.json("stats")["statistics"]["storms"]
        self.assertEqual((told["asked"], told["varying"][0]["stopped"]), (94, True))
        self.assertEqual([(each["device"], each["asked"], each["varying"][0]["stopped"])
                          for each in told["devices"]], [(0, 47, False), (1, 47, True)])

    def test_states_of_several_devices_are_those_of_any(self):
        def took(*states, **changes):
            return dict(TOKENS, examples=list(states), states=len(states), **changes)

        for arguments, wanted in [
                ([took("one"), took("div: 16")], "took 2 states: one, div: 16\n"),
                ([took("one", "div: 16"), took("div: 16")], "took 2 states: one, div: 16\n"),
                # All that are known by name are known to differ; of the others the most.
                ([took("one"), dict(TOKENS, examples=["div: 4"], states=3)],
                 "took 3 states: one, div: 4, ...\n"),
                ([took("one", more=True), took("div: 16")],
                 "took over 2 states: one, div: 16, ...\n"),
                ([took(*(f"value: {n}" for n in range(6))),
                  took(*(f"value: {n}" for n in range(3, 12)))],
                 "took 12 values: 0, 1, 2, 3, 4, 5, 6, 7, ...\n")]:
            self.on_devices(*arguments)
            self.assertIn(f"argument num_tokens {wanted}", self.shown())
        # What varies on one device alone is told beside it, most first.
        self.on_devices(took("one"), dict(took("div: 4", "div: 8"), name="stride"))
        self.assertEqual(re.findall(r"argument (\w+) took (\d)", self.shown()),
                         [("stride", "2"), ("num_tokens", "1")])

    def test_names_cannot_drive_the_terminal(self):
        varying = [dict(TOKENS, name=ODD, file=ODD, advice=ODD, replacement=ODD,
                        examples=[ODD])]
        self.scene(busy(kernels=[dict(GEMM, name=ODD, varying=varying)], trouble=ODD,
                        processes=[dict(VLLM, command=ODD, host=ODD, seal=ODD)]))
        done = self.run_command("stats", "-v", "--pid", 4711, remark="warning")
        for text in [done.out, done.err]:
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\u202e", text)
            self.assertIn('a "b" \u00fc\u6f22\\x1b[2J', text)
        read = self.json("stats", remark="warning")["statistics"]
        self.assertEqual(read["kernels"][0]["kernel"], ODD)
        self.assertEqual(read["storms"][0]["varying"][0]["replacement"], ODD)
        self.assertEqual(read["processes"][0]["command"], ODD)


class Width(Scenic):
    def setUp(self):
        super().setUp()
        self.env["JITCACHE_DIR"] = "/nowhere/cache"
        self.scene(busy(process_total={"cache_dropped": 3}, kernels=[
            GEMM, dict(GEMM, name="rope", device=1)], sealed={"launches": 9, "misses": 3},
            processes=[dict(VLLM, group="tensor_parallel", rank=3, ranks=8)],
            events=[barrier(rank, 12, text="tp out of memory") for rank in range(12)]))

    def at_width(self, columns, *words):
        status, text = self.at_terminal("stats", *words, columns=columns)
        self.assertEqual(status, 0, text)
        return text

    def test_no_line_is_wider_than_the_terminal(self):
        for columns in [20, 40, 60, 80, 100, 200]:
            for words in [[], ["-v"], ["-vv"]]:
                text = unpainted(self.at_width(columns, *words))
                for line in text.splitlines():
                    if columns >= 40:
                        self.assertLessEqual(len(line), columns, line)
                self.assertIn("Launches:", text)
                # What is to be written is all there; a break in it is a blank in YAML.
                self.assertIn(REPLACEMENT, " ".join(text.split()))

    def test_a_narrow_terminal_has_notes_below_and_shares_alone(self):
        text = unpainted(self.at_width(40))
        self.assertRegex(text, r"\n  memory hits: +1,203,882 \(99\.96 %\)\n")
        self.assertRegex(text, r"\n  stalls: +3\n    launches that waited, 1\.2 s in all\n")
        self.assertRegex(unpainted(self.at_width(40, "-v")), r"\nKERNEL gemm\n  DEVICE 0  LAUNCHES")
        self.assertRegex(unpainted(self.at_width(100)), r"\n  memory hits: +1,203,882 / 1,204,331 ")

    def test_an_exported_width_wins(self):
        self.env["COLUMNS"] = "40"
        for line in unpainted(self.at_width(100, "-v")).splitlines():
            self.assertLessEqual(len(line), 40, line)
        for wrong in ["", "many", "-3", "99999999999"]:
            self.env["COLUMNS"] = wrong
            self.assertRegex(unpainted(self.at_width(100)), r"memory hits: .* / 1,204,331 ")

    def test_a_pipe_gets_plain_text_that_is_not_wrapped(self):
        self.env["COLUMNS"] = "40"
        text = self.shown("-v")
        self.assertNotIn("\x1b", text)
        self.assertRegex(text, r"\n  memory hits: .* / 1,204,331 ")
        self.assertIn(f"\n      {REPLACEMENT}\n", text)

    def test_colours_are_for_terminals_unless_people_say_otherwise(self):
        for words, changes, terminal, pipe in [
                ([], {}, True, False),
                (["--color=auto"], {}, True, False),
                (["--color", "always"], {}, True, True),
                (["--color=never"], {}, False, False),
                ([], {"NO_COLOR": "1"}, False, False),
                ([], {"NO_COLOR": ""}, True, False),
                ([], {"CLICOLOR": "0"}, False, False),
                ([], {"CLICOLOR_FORCE": "1"}, True, True),
                ([], {"CLICOLOR_FORCE": "0"}, True, False),
                ([], {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
                (["--color=always"], {"NO_COLOR": "1"}, True, True),
                ([], {"TERM": "dumb"}, False, False)]:
            with self.subTest(words=words, changes=changes):
                before = dict(self.env)
                self.env.update(changes)
                self.assertEqual("\x1b[" in self.at_width(100, *words), terminal)
                self.assertEqual("\x1b[" in self.shown(*words), pipe)
                self.env = before

    def test_a_picture_can_be_taken_at_any_width(self):
        self.env["COLUMNS"] = "60"
        text = self.shown("--color=always")
        self.assertIn("\x1b[1m", text)
        for line in unpainted(text).splitlines():
            self.assertLessEqual(len(line), 60, line)

    def test_colours_change_nothing_but_colours(self):
        self.assertEqual(unpainted(self.shown("-v", "--color=always")), self.shown("-v"))
        self.assertEqual(unpainted(self.at_width(100, "-v", "--color=always")),
                         unpainted(self.at_width(100, "-v", "--color=never")))


class Since(Scenic):
    DAY = 24 * 60 * MINUTE
    MIDNIGHT = NOW // DAY * DAY

    # What is written, the local time zone, and what is asked for.
    TABLE = [
        ("90s", "UTC", NOW - 90_000),
        ("10m", "UTC", NOW - 10 * MINUTE),
        ("10min", "UTC", NOW - 10 * MINUTE),
        ("2h", "UTC", NOW - 120 * MINUTE),
        ("1h30m", "UTC", NOW - 90 * MINUTE),
        ("3d", "UTC", NOW - 3 * DAY),
        ("2w", "UTC", NOW - 14 * DAY),
        ("0s", "UTC", NOW),
        ("999999999w", "UTC", 1),
        ("999999999w999999999w", "UTC", 1),
        ("today", "UTC", MIDNIGHT),
        ("yesterday", "UTC", MIDNIGHT - DAY),
        ("today", "ZONE-5", MIDNIGHT - 5 * 60 * MINUTE),
        ("2026-11-30", "UTC", MIDNIGHT),
        ("2026-11-30", "ZONE-5", MIDNIGHT - 5 * 60 * MINUTE),
        ("2026-11-30T14:04", "UTC", NOW - 10_250),
        ("2026-11-30 14:04:09", "UTC", NOW - 1250),
        ("2026-11-30T14:04:10.2", "UTC", NOW - 50),
        ("2026-11-30T14:04:10.25", "UTC", NOW),
        ("2026-11-30T14:04:10.249999", "UTC", NOW - 1),
        ("2026-11-30T14:04Z", "ZONE-5", NOW - 10_250),
        ("2026-11-30T14:04z", "ZONE-5", NOW - 10_250),
        ("2026-11-30T14:04", "ZONE-5", NOW - 10_250 - 5 * 60 * MINUTE),
        ("2026-11-30T15:34+01:30", "ZONE-5", NOW - 10_250),
        ("2026-11-30T13:04:00-0100", "UTC", NOW - 10_250),
        ("2024-02-29", "UTC", 1_709_164_800_000),
        ("1970-01-01", "UTC", 1),
        ("@1796047450", "UTC", NOW - 250),
        ("@0", "UTC", 1),
    ]

    WRONG = [
        ("", "is no time"), ("10", "lacks its unit"), ("1h30", "lacks its unit"),
        ("10x", "is no time"), ("-10m", "is no time"), ("m", "is no time"), ("10 m", "is no time"),
        ("10m ago", "is no time"), ("noon", "is no time"), ("1.5h", "is no time"),
        ("9999999999s", "is no time"), ("tomorrow", "is no time"), ("@", "is no time"),
        ("@12x", "is no time"), ("2026-11", "is no time"), ("2026-11-30T", "is no time"),
        ("2026-11-30T14", "is no time"), ("2026-11-30T24:00", "is no time"),
        ("2026-11-30T14:60", "is no time"), ("2026-11-30T14:04:60", "is no time"),
        ("2026-11-30T14:04:10.", "is no time"), ("2026-11-30T14:04+", "is no time"),
        ("2026-11-30T14:04+25:00", "is no time"), ("2026-11-30T14:04ZZ", "is no time"),
        ("2026-02-30", "is no day"), ("2025-02-29", "is no day"), ("2026-13-01", "is no day"),
        ("2026-00-10", "is no day"), ("2026-11-00", "is no day"), ("1960-01-01", "before 1970"),
        ("2026-12-01", "in the future"), ("2026-11-30T14:05", "in the future"),
        ("@1796047451", "in the future"), ("2030-01-01T00:00Z", "in the future"),
    ]

    def test_moments_are_read_as_people_write_them(self):
        for written, zone, wanted in self.TABLE:
            with self.subTest(written=written, zone=zone):
                self.asked.unlink(missing_ok=True)
                self.env["TZ"] = zone
                self.shown("--since", written)
                self.assertEqual(self.asked.read_text(), f"read scope=1 since={wanted} pid=0\n")

    def test_what_is_no_moment_is_refused_with_what_to_write(self):
        for written, wanted in self.WRONG:
            with self.subTest(written=written):
                message = self.complaint("stats", f"--since={written}")
                self.assertIn(f"--since {written} ", message)
                self.assertIn(wanted, message)
                self.assertIn("2026-11-30T14:05", message)

    def test_the_screen_says_since_when_it_really_counts(self):
        for changes, wanted in [
                ({}, "the beginning"),
                ({"since_ms": NOW - 11 * MINUTE - 10_250}, "13:53:00, 11 min ago"),
                ({"since_ms": NOW - 49 * 60 * MINUTE}, "2026-11-28 13:04, 2 d ago"),
                ({"zeroed_ms": NOW - 5000}, "14:04:05, 5 s ago, when it was set to zero"),
                ({"since_ms": NOW - MINUTE, "zeroed_ms": NOW - 5000},
                 "14:04:05, 5 s ago, when it was set to zero"),
                ({"since_ms": NOW - MINUTE, "zeroed_ms": NOW - 5 * MINUTE},
                 "14:03:10, 1 min ago")]:
            self.scene(busy(**changes))
            self.assertEqual(self.line(self.shown(), "Since"), wanted)


class Process(Scenic):
    def test_one_process_can_be_asked_for(self):
        self.scene(busy(processes=[dict(VLLM, seal="frozen")]))
        text = self.shown("--pid", 4711)
        self.assertEqual(self.asked.read_text(), "read scope=1 since=0 pid=4711\n")
        self.assertEqual(self.line(text, "Process"),
                         "4711 vllm on gpu-7, since 13:04:10, sealed: frozen")
        self.lacks(text, "Processes")

    def test_one_that_is_not_there_is_refused(self):
        self.scene({"now_ms": NOW, "result": 7, "text": "no process 12 is there; try another"})
        self.assertEqual(self.complaint("stats", "--pid", 12),
                         "jitcache: no process 12 is there; try another")

    def test_what_is_no_process_is_refused(self):
        for wrong in ["", "0", "-1", "12x", "vllm", "99999999999"]:
            self.assertIn("write a process's number", self.complaint("stats", f"--pid={wrong}"))


class Zero(Scenic):
    def test_counting_from_now_on_says_what_was_done(self):
        self.fill()
        records = self.json("ls")["records"]
        self.assertEqual(self.shown("--zero"),
                         "the statistics count from now on; the cache stays as it is\n")
        self.assertEqual(self.asked.read_text(), "zero\n")
        self.assertEqual(self.json("ls")["records"], records)
        self.assertEqual(self.json("stats", "--zero"), {"zeroed": True, "now_ms": NOW})

    def test_where_there_is_no_cache_there_is_nothing_to_forget(self):
        self.assertEqual(self.shown("--zero"), "nothing was counted yet\n")
        self.assertEqual(self.json("stats", "--zero"), {"zeroed": False, "now_ms": NOW})
        self.assertFalse(self.asked.exists())
        self.assertFalse(self.cache.exists())

    def test_it_goes_with_no_option_of_showing(self):
        for words in [["--watch"], ["--since", "1m"], ["--pid", "1"], ["--openmetrics"]]:
            self.assertIn("--zero shows no figures", self.complaint("stats", "--zero", *words))


class Json(Scenic):
    def test_json_has_the_documented_names(self):
        self.fill()
        samples = [0, 5] + 45 * [0] + [1]
        self.scene(busy(kernels=[dict(GEMM, samples=samples)], sealed={"launches": 1},
                        events=EIGHT, process_total={"safe_points": 3}))
        read = self.json("stats")
        self.assertEqual(set(read), {"cache", "total", "kernels", "statistics"})
        self.assertEqual(read["total"]["variants"], 2)  # what the cache holds, as ever
        page = (harness.ROOT / "man" / "jitcache-stats.1").read_text()
        for name in self.names(read):
            self.assertRegex(page, rf"(?<!\w){name}(?!\w)")
        read = read["statistics"]
        self.assertEqual(set(read), {"now_ms", "since_ms", "zeroed_ms", "folder", "trouble",
                                     "ended", "total", "sealed", "process", "processes",
                                     "kernels", "groups", "storms", "events"})
        group, = read["groups"]
        self.assertEqual(set(group), {"group", "ranks", "open", "elapsed_ns", "waited_ns",
                                      "awaited", "told"})
        self.assertEqual((group["group"], group["open"], group["awaited"]), ("tp", True, 3))
        self.assertEqual(group["told"][3], {
            "rank": 3, "pid": 4103, "running": False, "given_up": False, "result": "open",
            "time_ms": NOW - 3 * MINUTE, "elapsed_ns": 4200 * MS, "worked_ns": 4195 * MS,
            "waited_ns": 5 * MS, "compiled": 31, "compile_ns": 3900 * MS})
        event = read["events"][-1]
        self.assertEqual((event["kind"], event["rank"], event["ranks"], event["compile_ns"]),
                         ("barrier", 3, 8, 3900 * MS))
        self.assertEqual(read["process"]["barriers"], 0)
        for counts in [read["total"], read["sealed"], read["kernels"][0]["total"],
                       read["kernels"][0]["sealed"]]:
            self.assertEqual(set(counts), COUNTS)
        self.assertEqual({name: read["total"][name] for name in TOTAL}, TOTAL)
        self.assertEqual(read["sealed"]["launches"], 1)
        self.assertEqual((read["now_ms"], read["ended"], read["process"]["safe_points"]),
                         (NOW, 17, 3))
        self.assertEqual(set(read["processes"][0]), {"pid", "command", "host", "start_ms",
                                                     "seen_ms", "running", "seal", "group",
                                                     "rank", "ranks", "counts"})
        self.assertEqual(set(read["kernels"][0]), {"kernel", "device", "total", "sealed",
                                                   "objects", "variants", "stand_ins", "asked",
                                                   "samples"})
        self.assertEqual([each["launches"] for each in read["kernels"][0]["samples"]], [5, 1])
        self.assertIsNone(read["kernels"][0]["samples"][1]["at_most_ns"])
        storm = read["storms"][0]
        self.assertEqual(set(storm), {"kernel", "asked", "first_asked_ms", "last_asked_ms",
                                      "per_minute", "goes_on", "lost_seconds", "varying",
                                      "devices"})
        self.assertEqual(set(storm["devices"][0]), {"device", "asked", "first_asked_ms",
                                                    "last_asked_ms", "varying"})
        self.assertAlmostEqual(storm["lost_seconds"], 32.2)
        self.assertEqual(storm["varying"], [dict(TOKENS, is_parameter=False, stopped=False,
                                                 more=False)])

    def names(self, value):
        if isinstance(value, dict):
            return set(value).union(*map(self.names, value.values()))
        return set().union(*map(self.names, value)) if isinstance(value, list) else set()

    def test_counts_beyond_what_readers_hold_stay_numbers(self):
        self.scene(busy(total={"launches": 2**63 - 1}))
        self.assertEqual(self.json("stats")["statistics"]["total"]["launches"], 2**63 - 1)


class Watch(Scenic):
    def stages(self, *launches, **changes):
        """A look after the other; the last one is interrupted."""
        stages = [busy(now_ms=NOW + 1000 * i, total=dict(TOTAL, launches=count), **changes)
                  for i, count in enumerate(launches)]
        stages[-1]["signal"] = int(signal.SIGINT)
        self.scene(*stages)
        return stages

    def test_a_pipe_gets_a_line_a_look_until_it_is_interrupted(self):
        stages = self.stages(1000, 3000, 9000, 9000)
        stages[2]["total"].update(misses=451, compiles=60, loads=450, stalls=4, failures=2)
        self.scene(*stages)
        lines = self.shown("--watch=1").splitlines()
        self.assertEqual([line.split() for line in lines], [
            ["TIME", "LAUNCHES", "IN", "ALL", "PER", "SECOND", "(10", "s)", "+MISSES",
             "+COMPILES", "+LOADS", "+STALLS", "+FAILURES"],
            ["14:04:10", "1,000", "-", "0", "0", "0", "0", "0"],
            ["14:04:11", "3,000", "2,000", "0", "0", "0", "0", "0"],
            ["14:04:12", "9,000", "4,000", "2", "2", "1", "1", "1"],
            ["14:04:13", "9,000", "2,667", "0", "0", "0", "0", "0"]])

    def test_counts_that_fall_begin_anew(self):
        self.stages(9000, 10, 20)
        rows = [line.split()[1:3] for line in self.shown("--watch").splitlines()[2:]]
        self.assertEqual(rows, [["10", "0"], ["20", "10"]])

    def test_other_signals_end_it_as_well(self):
        for number in [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]:
            self.scene(dict(BUSY, signal=int(number)))
            self.assertEqual(len(self.shown("--watch").splitlines()), 2)

    def test_an_interrupt_that_is_ignored_does_not_end_it(self):
        self.scene(dict(BUSY, signal=int(signal.SIGINT)), dict(BUSY, signal=int(signal.SIGTERM)))
        text = self.shown("--watch", preexec_fn=lambda: signal.signal(signal.SIGINT,
                                                                      signal.SIG_IGN))
        self.assertEqual(len(text.splitlines()), 3)

    def test_a_terminal_is_drawn_over_and_left_as_it_was(self):
        self.stages(1000, 3000)
        status, text = self.at_terminal("stats", "--watch", columns=100)
        self.assertEqual(status, 0, text)
        self.assertTrue(text.startswith("\x1b[?25l"), text)
        self.assertTrue(text.endswith("\x1b[?25h"), text)
        first, second = re.split(r"\x1b\[\d+A\r\x1b\[J", text)
        self.assertEqual(int(re.search(r"\x1b\[(\d+)A", text)[1]), first.count("\n"))
        self.assertLess(first.count("\n"), 24)  # the terminal's height
        self.assertIn("2,000 launches/s", second)
        self.assertIn("a taller window shows more", second)

    def test_rows_that_the_terminal_breaks_are_counted(self):
        self.env["JITCACHE_DIR"] = "/nowhere/" + 70 * "x"
        self.scene({"now_ms": NOW}, dict({"now_ms": NOW}, signal=int(signal.SIGINT)))
        status, text = self.at_terminal("stats", "--watch", columns=40)
        first = re.split(r"\x1b\[\d+A", text)[0]
        rows = sum(max(1, -(-len(line) // 40)) for line in unpainted(first).splitlines())
        self.assertEqual(int(re.search(r"\x1b\[(\d+)A", text)[1]), rows)
        self.assertGreater(rows, first.count("\n"))

    def test_what_is_said_of_a_short_window_fits_into_a_narrow_one(self):
        self.stages(1000, 3000)
        status, text = self.at_terminal("stats", "--watch", columns=20)
        last = unpainted(re.split(r"\x1b\[\d+A", text)[0]).splitlines()[-1]
        self.assertEqual((status, last), (0, "... a taller window "[:20]))

    def waiting_at(self, terminal):
        """What a process that does not run any more has printed."""
        text = b""
        while select.select([terminal], [], [], 0)[0]:
            try:
                text += os.read(terminal, 65536)
            except OSError:  # the other side is closed
                break
        return text

    def test_a_stopped_one_leaves_the_terminal_as_it_was_and_goes_on(self):
        self.scene(dict(BUSY, signal=int(signal.SIGTSTP)), dict(BUSY, signal=int(signal.SIGINT)))
        terminal, other = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = subprocess.Popen([harness.SCENIC, "stats", "--watch=86400"], env=self.env,
                                   stdin=other, stdout=other, stderr=other)
        os.close(other)
        self.addCleanup(process.kill)
        end = time.monotonic() + harness.LIMIT_S
        while time.monotonic() < end and process.poll() is None:
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                break
            time.sleep(0.01)
        before = self.waiting_at(terminal)
        self.assertTrue(before.endswith(b"\x1b[?25h"), before)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(harness.LIMIT_S), 0)
        after = self.waiting_at(terminal)
        self.assertTrue(after.startswith(b"\x1b[?25l\x1b[H\x1b[2J"), after)
        self.assertTrue(after.endswith(b"\x1b[?25h"), after)

    def test_a_new_size_of_the_terminal_draws_it_anew(self):
        self.scene(dict(BUSY, signal=int(signal.SIGWINCH)), dict(BUSY, signal=int(signal.SIGINT)))
        status, text = self.at_terminal("stats", "--watch=86400", columns=100)
        self.assertEqual(status, 0)
        self.assertEqual(text.count("\x1b[H\x1b[2J"), 1)

    def test_what_could_not_be_read_is_told_once(self):
        self.stages(1, 2, 3, trouble="a: damaged")
        done = self.run_command("stats", "--watch", remark="a: damaged")
        self.assertEqual(done.err, "jitcache: warning: a: damaged\n")
        status, text = self.at_terminal("stats", "--watch", columns=100)
        self.assertNotIn("warning", text)

    def test_json_is_a_line_a_look(self):
        self.stages(1, 2)
        lines = self.shown("--watch", "--json").splitlines()
        self.assertEqual([json.loads(line)["statistics"]["total"]["launches"] for line in lines],
                         [1, 2])

    def test_a_reader_that_is_gone_ends_it(self):
        for words in [[], ["--json"]]:
            done = subprocess.run([harness.SCENIC, "stats", "--watch", *words], env=self.env,
                                  stdin=subprocess.DEVNULL, stdout=open("/dev/full", "wb"),
                                  stderr=subprocess.PIPE, timeout=harness.LIMIT_S)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr.decode(), r"\Ajitcache: standard output: .*\n\Z")

    def test_a_cache_that_cannot_be_read_ends_it_with_the_terminal_restored(self):
        self.cache.write_text("mine\n")
        status, text = self.at_terminal("stats", "--watch", columns=100)
        self.assertEqual(status, 2)
        self.assertIn("\x1b[?25h", text)

    def test_what_is_no_interval_is_refused(self):
        for wrong in ["", "0", "-1", "1s", "nan", "inf", "0.01", "86401"]:
            self.assertIn("write seconds", self.complaint("stats", f"--watch={wrong}"))
        self.assertIn("takes no '5'", self.complaint("stats", "--watch", "5"))


METRICS = r"""# HELP jitcache_launches With \"quotes\", a \\ and a \n.
# TYPE jitcache_launches counter
jitcache_launches_total{kernel="a \"b\" #c",device="0"} 5
# TYPE jitcache_compile_seconds counter
# UNIT jitcache_compile_seconds seconds
jitcache_compile_seconds_total 0.25
# TYPE jitcache_variants gauge
jitcache_variants 3
# TYPE jitcache_odd unknown
jitcache_odd 1
# TYPE jitcache_empty counter
# TYPE jitcache_tail histogram
# HELP jitcache_tail How long.
jitcache_tail_bucket{le="1e-07"} 1
jitcache_tail_bucket{le="+Inf"} 2
# EOF
"""

OLDER = r"""# HELP jitcache_launches_total With "quotes", a \\ and a \n.
# TYPE jitcache_launches_total counter
jitcache_launches_total{kernel="a \"b\" #c",device="0"} 5
# TYPE jitcache_compile_seconds_total counter
jitcache_compile_seconds_total 0.25
# TYPE jitcache_variants gauge
jitcache_variants 3
# TYPE jitcache_odd untyped
jitcache_odd 1
# HELP jitcache_tail_bucket How long.
# TYPE jitcache_tail_bucket untyped
jitcache_tail_bucket{le="1e-07"} 1
jitcache_tail_bucket{le="+Inf"} 2
"""


class Metrics(Scenic):
    def setUp(self):
        super().setUp()
        self.scene(busy(openmetrics=METRICS))
        self.out = self.folder / "out"
        self.out.mkdir()

    def test_they_are_printed_as_the_library_writes_them(self):
        for word in ["--openmetrics", "--openmetrics=-"]:
            self.assertEqual(self.shown(word), METRICS)

    def test_a_file_is_replaced_as_a_whole_and_can_be_read_by_others(self):
        file = self.out / "metrics.txt"
        file.write_text("what was there before\n")
        before = file.stat().st_ino
        self.assertEqual(self.shown(f"--openmetrics={file}", preexec_fn=lambda: os.umask(0o077)),
                         "")
        self.assertEqual(file.read_text(), METRICS)
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o644)
        self.assertNotEqual(file.stat().st_ino, before)
        self.assertEqual(os.listdir(self.out), ["metrics.txt"])

    def test_the_textfile_collector_gets_the_format_that_it_reads(self):
        self.shown(f"--openmetrics={self.out}/jitcache.prom")
        self.assertEqual((self.out / "jitcache.prom").read_text(), OLDER)
        self.shown("--openmetrics=beside.prom", cwd=self.out)
        self.assertEqual(sorted(os.listdir(self.out)), ["beside.prom", "jitcache.prom"])

    def test_every_sample_has_a_family_of_a_type_that_the_collector_knows(self):
        """It shows the sum and the count of a histogram without them as 0."""
        self.env.update(self.scenic("serving"))
        self.shown(f"--openmetrics={self.out}/x.prom")
        text = (self.out / "x.prom").read_text()
        types = dict(re.findall(r"(?m)^# TYPE (\w+) (\w+)$", text))
        untyped = [name for name, kind in types.items() if kind not in ("counter", "gauge")]
        self.assertEqual(untyped, ["jitcache_launch_seconds_bucket"])
        samples = re.findall(r"(?m)^(\w+)[{ ]", text)
        self.assertEqual(set(samples), set(types))
        # They are those that the library writes.
        self.assertEqual(samples, re.findall(r"(?m)^(\w+)[{ ]", self.shown("--openmetrics")))

    @unittest.skipUnless(parser, "no prometheus_client here; scripts/setup --tests installs it")
    def test_a_client_of_prometheus_reads_what_the_collector_gets(self):
        self.env.update(self.scenic("serving"))
        self.shown(f"--openmetrics={self.out}/x.prom")
        families = {family.name: family for family in parser.text_string_to_metric_families(
            (self.out / "x.prom").read_text())}
        buckets = families["jitcache_launch_seconds_bucket"]
        self.assertEqual(buckets.type, "unknown")
        self.assertEqual({sample.name for sample in buckets.samples},
                         {"jitcache_launch_seconds_bucket"})
        self.assertEqual({len(family.samples) > 0 for family in families.values()}, {True})

    def test_where_a_link_leads_is_replaced(self):
        (self.out / "x.prom").write_text("what was there before\n")
        os.symlink("x.prom", self.out / "link.prom")
        self.shown(f"--openmetrics={self.out}/link.prom")
        self.assertTrue((self.out / "link.prom").is_symlink())
        self.assertEqual((self.out / "x.prom").read_text(), OLDER)

    def test_what_is_no_file_is_written_as_it_is(self):
        self.assertEqual(self.shown("--openmetrics=/dev/null"), "")
        # As /dev/stdout is, which root could replace.
        os.symlink("/proc/self/fd/1", self.out / "output")
        self.assertEqual(self.shown(f"--openmetrics={self.out}/output"), METRICS)
        self.assertEqual(os.readlink(self.out / "output"), "/proc/self/fd/1")

    def test_a_file_that_cannot_be_written_is_told_and_leaves_nothing(self):
        for path in [self.folder / "none" / "x.prom", "/proc/x.prom"]:
            self.assertIn(f"{path}: its folder does not exist",
                          self.complaint("stats", f"--openmetrics={path}"))
        for path, wanted in [(self.out, "Is a directory"), ("/dev/full", "No space left")]:
            self.assertIn(f"{path}: cannot write: {wanted}",
                          self.complaint("stats", f"--openmetrics={path}"))
        self.assertEqual(os.listdir(self.out), [])
        self.assertIn("lacks the FILE", self.complaint("stats", "--openmetrics="))

    def test_watching_writes_them_again_and_again(self):
        file = self.out / "x.prom"
        self.scene(busy(openmetrics="# EOF\n"),
                   busy(openmetrics=METRICS, signal=int(signal.SIGTERM)))
        self.assertEqual(self.shown("--watch", f"--openmetrics={file}"), "")
        self.assertEqual(file.read_text(), OLDER)
        self.assertIn("needs --openmetrics=FILE", self.complaint("stats", "--watch",
                                                                 "--openmetrics"))

    def test_they_are_no_json(self):
        self.assertIn("one of them", self.complaint("stats", "--json", "--openmetrics"))


if __name__ == "__main__":
    harness.main()
