"""Groups of ranks from outside: warm-ups that open, and those that do not."""
import fcntl
import os
import re
import shutil
import signal
import struct
import time
from pathlib import Path

import crew
import harness
from crew import DIFFER, INVALID, IO, LATE, NOT_READY, PEER, SECOND

KERNELS, VARIANTS = 10, 10
KEYS = KERNELS * VARIANTS

LOG, FROZEN = 2, 4  # enum jc_seal

# struct flock: the first byte of the file, which who joins or leaves holds for moments.
LOCK_OF_GATE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)

# How long others may take to tell of a rank that died.
SOON_S = 1.0


class Opening(crew.Case):
    def spans_of_compiles(self):
        """When each compile began and ended, and which began while its like was under way."""
        begun, spans, again = {}, [], 0
        for line in self.spans.read_text().splitlines():
            what, number, _, at_ns, *_ = line.split()
            if what == "end":
                spans.append((begun.pop(number), int(at_ns)))
            else:
                begun[number] = int(at_ns)
                again += what == "again"
        self.assertEqual(begun, {})
        return spans, again

    def idle(self, spans, slots):
        """The part of the slots' time that went unused while there were keys to begin with; and
        how many were under way at most."""
        steps = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
        first, last = (bound(begin for begin, _ in spans) for bound in (min, max))
        running = most = unused = 0
        for (at, change), (after, _) in zip(steps, steps[1:]):
            running += change
            most = max(most, running)
            unused += max(0, slots - running) * max(0, min(after, last) - at)
        return unused / (slots * (last - first)), most

    def expect_barrier(self, ranks, verdicts):
        """None went on before all had everything."""
        for rank, verdict in zip(ranks, verdicts):
            self.assertEqual({seen["state"] for seen in verdict["seen"]}, {"ready"}, verdict)
        ready = max(rank.last("warming")["at_ns"] + verdict["ready_ns"]
                    for rank, verdict in zip(ranks, verdicts))
        self.assertGreaterEqual(min(verdict["at_ns"] for verdict in verdicts), ready)

    def test_an_empty_cache_costs_one_compile_for_each_key(self):
        ranks = self.start_all(8, *self.templates(KERNELS, VARIANTS - 1, rounds=48),
                               f"seal={FROZEN}", f"launches={VARIANTS - 1}", "hold@joined",
                               "hold@opened")
        for rank in ranks:
            self.until_said(rank, "holding")
        for rank in ranks:
            rank.go_on()
        verdicts = self.expect_ok(ranks, planned=KEYS, loaded=KEYS, variants=KEYS, loads=KEYS,
                                  failed=0, ranks=8, ready=8, lost=0, seal=FROZEN)
        spans, again = self.spans_of_compiles()
        self.assertEqual((self.compiles(), len(spans), again), (KEYS, KEYS, 0))
        self.assertEqual(sum(verdict["compiled"] for verdict in verdicts), KEYS)
        self.assertLessEqual(max(end for _, end in spans),
                             min(verdict["at_ns"] for verdict in verdicts))
        self.expect_barrier(ranks, verdicts)
        idle, most = self.idle(spans, int(self.env["JITCACHE_JOBS"]))
        print(f"\n8 ranks, {KEYS} keys: workers idle {idle:.1%}, {most} at a time at most,"
              f" compiled {[verdict['compiled'] for verdict in verdicts]}")
        # The bound is 5 % on a machine that has nothing else to do.
        self.assertLess(idle, 0.15)
        for rank in ranks:
            rank.go_on()
        self.expect_end(ranks)
        for rank in ranks:
            launched = rank.last("launched")
            self.assertTrue(launched, self.tell())
            self.assertEqual([launched[name] for name in ("misses", "compiles", "loads")], [0] * 3)
        self.expect_nothing_left()

    def time_to_ready(self, count, words):
        """From when all may go until the last one is through."""
        folder = self.folder / f"groups-{len(self.ranks)}"
        folder.mkdir(mode=0o700)
        ranks = [self.start(i, count, *words, "hold@joined", folder=folder) for i in range(count)]
        for rank in ranks:
            self.until_said(rank, "holding")
        begin_ns = time.monotonic_ns()
        for rank in ranks:
            rank.go_on()
        verdicts = self.expect_ok(ranks, compiled=0, loaded=KEYS)
        self.expect_end(ranks)
        return (max(verdict["at_ns"] for verdict in verdicts) - begin_ns) / SECOND

    def test_a_warm_group_is_ready_about_as_soon_as_one_alone(self):
        words = self.templates(KERNELS, VARIANTS - 1)
        self.expect_ok([self.start(0, 1, *words)])
        took = {count: min(self.time_to_ready(count, words) for _ in range(3))
                for count in (1, 2, 8)}
        print("\nwarm: " + ", ".join(f"{count} in {seconds * 1000:.0f} ms"
                                     for count, seconds in took.items()))
        # Each rank has work of its own, which needs a core; 25 % is for who has as many.
        cores = len(os.sched_getaffinity(0))
        for count in (2, 8):
            self.assertLess(took[count], 2 * max(1, count / cores) * took[1] + 0.5)
        self.assertEqual(self.compiles(), KEYS)

    def test_ranks_without_a_common_cache_compile_for_themselves(self):
        words = self.templates(1, 4)
        ranks = [self.start(i, 3, *words, "hold@opened",
                            JITCACHE_DIR=str(self.folder / f"cache-{i}")) for i in range(3)]
        self.expect_barrier(ranks, self.expect_ok(ranks, compiled=5, loaded=5, loads=5))
        self.assertEqual(self.compiles(), 15)
        warning = "ranks 1 and 2 have another cache folder than rank 0: each compiles for itself"
        self.assertEqual([warning in rank.log for rank in ranks], [True, False, False])

    def test_a_cache_of_one_rank_alone_is_no_reason_to_fail(self):
        words = self.templates(1, 4)
        ranks = [self.start(i, 3, *words, **({"JITCACHE_DISABLE": "1"} if i == 1 else {}))
                 for i in range(3)]
        self.expect_ok(ranks, loaded=5, loads=5)
        self.assertEqual(self.compiles(), 10)

    def test_each_may_have_a_plan_of_its_own(self):
        ranks = [self.start(i, 3, "own", *self.templates(i, 3 + i, name=f"own{i}"), "hold@opened")
                 for i in range(3)]
        verdicts = self.expect_ok(ranks, ready=3)
        self.assertEqual([verdict["loaded"] for verdict in verdicts], [0, 5, 12])
        self.assertEqual(self.compiles(), 17)
        self.expect_barrier(ranks, verdicts)

    def test_own_plans_that_overlap_cost_one_compile_for_each_key(self):
        shared, other = self.templates(1, 4), self.templates(1, 2, name="other")
        ranks = [self.start(i, 3, "own", *shared, *(other if i else [])) for i in range(3)]
        self.expect_ok(ranks)
        self.assertEqual(self.compiles(), 8)

    def test_the_order_of_kernels_does_not_matter(self):
        words = self.templates(3, 2)
        ranks = [self.start(i, 2, *way(words)) for i, way in enumerate((list, reversed))]
        self.expect_ok(ranks, loaded=9)
        self.assertEqual(self.compiles(), 9)

    def test_a_group_of_one_waits_for_nobody(self):
        rank = self.start(0, 1, *self.templates(1, 4), "calls=2", f"seal={FROZEN}")
        self.expect_end([rank])
        first, second = rank.all("warm")
        self.assertEqual((first["result"], first["compiled"]), (crew.OK, 5))
        # The first one has sealed it as frozen, and there is nothing left to load.
        self.assertEqual((second["result"], second["compiled"], second["loads"]), (crew.OK, 0, 5),
                         self.tell())
        self.expect_nothing_left()

    def test_a_second_warm_up_finds_everything_loaded(self):
        ranks = self.start_all(3, *self.templates(1, 4), "calls=3", f"seal={LOG}")
        self.expect_end(ranks)
        for rank in ranks:
            self.assertEqual([(each["result"], each["loads"]) for each in rank.all("warm")],
                             [(crew.OK, 5)] * 3, self.tell())
        self.assertEqual(self.compiles(), 5)

    def test_a_rank_that_comes_late_is_waited_for(self):
        words = [*self.templates(1, 2), "timeout=20000"]
        ranks = [self.start(i, 3, *words) for i in range(2)]
        for rank in ranks:
            self.until(lambda rank=rank: rank.last("progress"), "it waits")
        ranks.append(self.start(2, 3, *words))
        self.expect_ok(ranks, loaded=3)

    def test_nothing_to_warm_up_is_a_barrier_all_the_same(self):
        ranks = [self.start(0, 2)]
        self.until_said(ranks[0], "warming")
        ranks.append(self.start(1, 2, "hold@start"))
        self.until_said(ranks[1], "holding")
        self.assertIsNone(ranks[0].last("warm"))
        ranks[1].go_on()
        self.expect_ok(ranks, planned=0, loaded=0)

    def test_rank_0_logs_how_far_it_is(self):
        self.hold.touch()
        ranks = self.start_all(2, *self.templates(1, 4), JITCACHE_LOG="info")
        self.until_compiling()
        shown = r"(?m)^log: .*\b0 of 5\b|\b0/5\b"
        self.until(lambda: re.search(shown, ranks[0].log), "a line of progress", 20)
        self.assertNotRegex(ranks[1].log, shown)
        self.hold.unlink()
        self.expect_ok(ranks)

    def test_a_group_may_have_more_ranks_than_there_are_cores(self):
        ranks = self.start_all(32, "timeout=60000")
        self.expect_ok(ranks, ready=32)
        self.expect_end(ranks)
        self.expect_nothing_left()

    def test_two_groups_of_one_cache_do_not_meet(self):
        words = self.templates(1, 9)
        ranks = [self.start(i, 2, *words, name=name) for name in ("a", "b") for i in range(2)]
        self.expect_ok(ranks, loaded=10)
        self.assertEqual(self.compiles(), 10)
        self.expect_end(ranks)
        self.expect_nothing_left()


class Losing(crew.Case):
    RANKS = 4
    LOST = 2

    def others(self, ranks):
        return [rank for rank in ranks if rank.number != self.LOST]

    def start_with(self, fault, *words, **variables):
        """All ranks; the one that is to be lost has the fault."""
        return [self.start(i, self.RANKS, *words, *(fault if i == self.LOST else []), **variables)
                for i in range(self.RANKS)]

    # Each brings the group to some moment, and gives its ranks.

    def before_it_says_anything(self, *words, child=()):
        ranks = self.start_with([*(f"{each}@joined" for each in child), "hold@joined"],
                                *self.templates(1, 6), *words)
        self.until_said(ranks[self.LOST], "holding")
        for rank in self.others(ranks):
            self.until_said(rank, "warming")
        return ranks

    def while_it_compiles(self, *words, child=()):
        self.hold.touch()
        ranks = self.start_with([f"{each}@joined" for each in child], *self.templates(1, 6),
                                *words)
        self.until_compiling()
        for rank in ranks:
            self.until_planned(rank)
        return ranks

    def once_it_is_ready(self, *words, child=()):
        ready = self.templates(1, 2, name="ready")
        self.expect_ok([self.start(0, 1, *ready, name="before")])
        self.release()
        before = self.compiles()
        self.hold.touch()
        kernels = self.templates(1, 6)
        ranks = []
        for i in range(self.RANKS):
            own = [*ready, *(f"{each}@joined" for each in child)] if i == self.LOST else kernels
            ranks.append(self.start(i, self.RANKS, "own", *own, *words))
        self.until_compiling(before + 1)
        self.until(lambda: any(line["loaded"] == 3 and line["ready"] == 1 for line in
                               ranks[self.LOST].all("progress")), "one is ready")
        return ranks

    MOMENTS = [before_it_says_anything, while_it_compiles, once_it_is_ready]

    def at_each_moment(self, check):
        """Also where a child of the lost rank lives on, whether or not a handler of forks ran."""
        for moment in self.MOMENTS:
            for child in ((), ("fork",), ("clone",)):
                with self.subTest(moment=moment.__name__, child=child):
                    try:
                        check(moment, child)
                    finally:
                        self.start_anew()

    def start_anew(self):
        self.release()
        shutil.rmtree(self.cache, ignore_errors=True)
        self.count.unlink(missing_ok=True)

    def test_a_rank_that_is_killed_is_named_by_the_others_at_once(self):
        def check(moment, child):
            ranks = moment(self, child=child)
            lost, others = ranks[self.LOST], self.others(ranks)
            self.assertEqual(len(lost.all("child")), len(child))
            at_ns = lost.kill()
            verdicts = self.expect_failure(others, PEER, rf"\brank {self.LOST}\b",
                                           rf"\b{lost.process.pid}\b")
            self.expect_soon(verdicts, at_ns, SOON_S)
            for verdict in verdicts:
                self.assertEqual(verdict["seen"][self.LOST]["state"], "lost")
            self.hold.unlink(missing_ok=True)
            self.expect_end(others)
        self.at_each_moment(check)

    def test_the_others_finish_without_it_if_asked_to(self):
        def check(moment, child):
            ranks = moment(self, "without_lost", child=child)
            ranks[self.LOST].kill()
            self.hold.unlink(missing_ok=True)
            others = self.others(ranks)
            for verdict in self.expect_ok(others, loaded=7, loads=7, lost=1,
                                          ready=self.RANKS - 1):
                self.assertEqual(verdict["seen"][self.LOST]["state"], "lost")
            self.expect_end(others)
        self.at_each_moment(check)

    def test_a_rank_that_leaves_is_named(self):
        for way in ("exit", "leave"):
            with self.subTest(way=way):
                ranks = self.start_with(["hold@joined", f"{way}@joined"], *self.templates(1, 2))
                self.until_said(ranks[self.LOST], "holding")
                for rank in self.others(ranks):
                    self.until_said(rank, "warming")
                at_ns = time.monotonic_ns()
                ranks[self.LOST].go_on()
                self.expect_soon(self.expect_failure(self.others(ranks), PEER,
                                                     rf"\brank {self.LOST}\b"), at_ns, SOON_S)
                self.expect_end(ranks)

    def at_each_stop(self, check, *words, **variables):
        """Before it has said anything, and while all of them compile: each has begun some."""
        for where in ("joined", "progress", "loading"):
            with self.subTest(where=where):
                self.hold.touch()
                try:
                    ranks = self.start_with([f"stop@{where}"], *self.templates(1, 15), *words,
                                            "hold@opened", **variables)
                    self.until_said(ranks[self.LOST], "fault")
                    if where != "joined":
                        self.until_compiling()
                    self.hold.unlink()
                    check(ranks)
                    ranks[self.LOST].signal(signal.SIGCONT)
                    verdict = self.until_said(ranks[self.LOST], "warm", 5)
                    self.assertIn(verdict["result"], (PEER, LATE), self.tell())
                    for rank in ranks:
                        rank.go_on()
                    self.expect_end(ranks)
                finally:
                    self.start_anew()

    def test_a_stopped_rank_is_named_when_the_time_is_up(self):
        def check(ranks):
            others = self.others(ranks)
            for rank, verdict in zip(others, self.expect_failure(others, LATE,
                                                                 rf"\brank {self.LOST}\b")):
                took_ns = verdict["at_ns"] - rank.last("warming")["at_ns"]
                self.assertLess(took_ns, 4 * SECOND)
                self.assertEqual(verdict["seen"][self.LOST]["state"], "lost")
        self.at_each_stop(check, "timeout=3000")

    def test_the_others_finish_without_a_stopped_rank_if_asked_to(self):
        def check(ranks):
            self.expect_ok(self.others(ranks), loaded=16, lost=1, ready=self.RANKS - 1)
        # What it had begun to compile is compiled by others, long before that has taken too long.
        # The slots that it has are awaited for 2 s, and a sanitizer takes its time.
        self.at_each_stop(check, "timeout=20000", "without_lost")

    def test_a_stopped_rank_is_named_also_where_the_others_are_not_ready(self):
        self.hold.touch()
        ranks = self.start_with(["stop@loading"], *self.templates(1, 15), "timeout=2000",
                                "without_lost")
        others = self.others(ranks)
        verdicts = self.expect_failure(
            others, LATE, rf"^rank {self.LOST} did not answer in time; when last heard of,"
            rf" rank {self.LOST} had 0 of 16 variants loaded\nranks 0, 1 and 3: the time limit")
        self.assertEqual(len({verdict["text"] for verdict in verdicts}), 1, self.tell())
        self.expect_end(others)

    def test_a_rank_that_does_not_come_in_time_is_named(self):
        words = [*self.templates(1, 2), "timeout=1500"]
        ranks = [self.start(i, 3, *words) for i in range(2)]
        for rank, verdict in zip(ranks, self.expect_failure(ranks, LATE, r"\brank 2\b")):
            self.assertLess(verdict["at_ns"] - rank.last("warming")["at_ns"], 2.5 * SECOND)
        self.expect_end(ranks)
        # Too late: what it finds is a job of the past, or none.
        late = self.start(2, 3, *words)
        self.expect_failure([late], LATE, r"\branks? 0\b")
        self.expect_end([late])
        self.expect_nothing_left()

    def test_a_rank_that_gives_up_does_so_for_all(self):
        ranks = self.start_with(["refuse@progress"], *self.templates(1, 2))
        self.expect_failure(ranks, NOT_READY, rf"\brank {self.LOST}\b")
        self.expect_end(ranks)

    def test_a_variant_that_fails_in_one_rank_fails_in_all_and_can_be_tried_again(self):
        ranks = [self.start(i, 3, "own", *self.templates(1, 2, name=f"own{i}"), "calls=2",
                            "hold@opened", JITCACHE_NVRTC_ACT="fail@void own1")
                 for i in range(3)]
        verdicts = self.expect_failure(ranks, verdict_of(self, ranks[1]), r"\brank 1\b", "own1")
        self.assertEqual(len({verdict["result"] for verdict in verdicts}), 1)
        for rank in ranks:
            rank.go_on()
        self.expect_end(ranks)
        for rank in ranks:
            self.assertEqual(len(rank.all("warm")), 2)
            # Again a verdict on the plan, not on the group.
            self.assertEqual(rank.last("warm")["result"], verdicts[0]["result"], self.tell())


def verdict_of(case, rank):
    return case.verdicts([rank])[0]["result"]


class Differing(crew.Case):
    def expect_difference(self, ranks, *patterns):
        """All tell the same, and the one that differs is named."""
        verdicts = self.expect_failure(ranks, DIFFER, *patterns)
        self.assertEqual(len({verdict["text"] for verdict in verdicts}), 1, self.tell())
        self.assertEqual(self.compiles(), 0)
        self.expect_end(ranks)

    def test_another_template_is_named_with_the_line_that_differs(self):
        words = self.templates(2, 2)
        other = self.template("k1", 2, rounds=17, file="other")
        ranks = [self.start(i, 4, *(words if i != 1 else [words[0], f"kernel={other}"]))
                 for i in range(4)]
        self.expect_difference(ranks, r"\brank 1\b", r"\bk1\b", r"source=")

    def test_another_range_is_named(self):
        words = self.templates(1, 4)
        ranks = [self.start(i, 4, *words, *(["range=n=1:3"] if i == 3 else [])) for i in range(4)]
        self.expect_difference(ranks, r"\brank 3\b", r"\bk0\b")

    def test_more_kernels_are_named(self):
        words = self.templates(2, 2)
        ranks = [self.start(i, 3, *(words if i == 0 else words[:1])) for i in range(3)]
        self.expect_difference(ranks, r"\brank 0\b", r"\bk1\b")

    def test_another_architecture_is_named(self):
        words = self.templates(1, 2)
        ranks = [self.start(i, 3, *words, **({"JITCACHE_SIM_CAPABILITY": "8.0"} if i == 2 else {}))
                 for i in range(3)]
        self.expect_difference(ranks, r"\brank 2\b", r"arch=sm_80")

    def test_another_compiler_is_named(self):
        other = os.environ.get("JITCACHE_TEST_NVRTC12")
        if not other:
            self.skipTest("no second NVRTC here: JITCACHE_TEST_NVRTC12 names none")
        words = self.templates(1, 2)
        ranks = [self.start(i, 3, *words, JITCACHE_DIR=str(self.folder / f"cache-{i}"),
                            **({"JITCACHE_NVRTC": other} if i == 1 else {})) for i in range(3)]
        self.expect_difference(ranks, r"\brank 1\b", r"NVRTC|toolchain")

    def test_two_camps_are_told_apart_by_the_lowest_rank(self):
        words = self.templates(1, 2)
        other = self.template("k0", 2, rounds=20, file="other")
        ranks = [self.start(i, 4, *(words if i < 2 else [f"kernel={other}"])) for i in range(4)]
        self.expect_difference(ranks, r"\brank(s)? 2\b")

    def test_other_words_of_the_call_are_named(self):
        words = self.templates(1, 2)
        for word, pattern in (("own", "mode"), (f"seal={LOG}", "seal"),
                              ("without_lost", "without_lost")):
            with self.subTest(word=word):
                ranks = [self.start(i, 3, *words, *([word] if i == 1 else [])) for i in range(3)]
                self.expect_difference(ranks, r"\brank 1\b", pattern)
                self.release()

    def test_once_the_difference_is_gone_the_same_group_opens(self):
        words = self.templates(1, 2)
        other = self.template("k0", 2, rounds=20, file="other")
        ranks = [self.start(i, 2, *(words if i == 0 else [f"kernel={other}"]), "calls=2",
                            "hold@opened") for i in range(2)]
        self.expect_failure(ranks, DIFFER, r"\brank 1\b")
        self.template("k0", 2, file="other")
        for rank in ranks:
            self.until_said(rank, "holding")
            rank.go_on()
        self.expect_end(ranks)
        self.expect_ok(ranks, loaded=3)


class Joining(crew.Case):
    def test_a_rank_beyond_the_group_is_refused(self):
        for number, ranks in ((2, 2), (9, 3), (0, 0), (0, 1025)):
            with self.subTest(rank=number, ranks=ranks):
                self.expect_refusal(self.start(number, ranks), INVALID, r"jc_group_params: rank")
        for name in ("", ".x", "-x", "a/b", "x" * 65, "ü"):
            with self.subTest(name=name):
                self.expect_refusal(self.start(0, 1, name=name), INVALID, r"name")
        self.expect_nothing_left()

    def test_a_rank_that_is_there_twice_is_refused(self):
        first = self.start(0, 2, "hold@joined")
        self.until_said(first, "holding")
        at_ns = time.monotonic_ns()
        refused = self.expect_refusal(self.start(0, 2), INVALID, r"\brank: 0\b",
                                      rf"\b{first.process.pid}\b")
        self.expect_soon([refused], at_ns, 7)
        # The group does not suffer from it.
        first.go_on()
        self.expect_ok([first, self.start(1, 2)])

    def test_another_number_of_ranks_is_refused(self):
        first = self.start(0, 2, "hold@joined")
        self.until_said(first, "holding")
        self.expect_refusal(self.start(1, 3), DIFFER, r"\b2\b", r"\b3\b")
        first.go_on()
        self.expect_ok([first, self.start(1, 2)])

    def test_what_a_crashed_job_left_is_in_nobodys_way(self):
        words = self.templates(1, 2)
        for fault in ("hold@joined", "hold@opened"):
            with self.subTest(fault=fault):
                ranks = self.start_all(3, *words, fault)
                for rank in ranks:
                    self.until_said(rank, "holding")
                for rank in ranks:
                    rank.signal(signal.SIGKILL)
                # At once: some of them may still be about to end.
                again = self.start_all(3, *words)
                self.expect_ok(again, loaded=3)
                self.expect_end(again)
                self.expect_nothing_left()

    def test_a_job_that_is_started_again_does_not_mix_with_the_one_before(self):
        """Of which two ranks had come, of whom one is stopped, and which end only now."""
        for way in ((), ("without_lost",)):
            with self.subTest(way=way):
                words = [*self.templates(1, 2), *way, "timeout=20000"]
                old = [self.start(i, 4, *words, "launch=run 1", "hold@joined") for i in (1, 3)]
                for rank in old:
                    self.until_said(rank, "holding")
                old[1].signal(signal.SIGSTOP)
                new = [self.start(i, 4, *words, "launch=run 2", "hold@made") for i in range(4)]
                for rank in new:
                    self.until_said(rank, "holding")
                    rank.go_on()
                for rank in old:
                    # Beside an old one nobody sits down.
                    time.sleep(0.2)
                    self.assertEqual([each.last("joined") for each in new], [None] * 4)
                    rank.kill()
                self.expect_ok(new, loaded=3, ready=4, lost=0)
                self.expect_end(new)
                self.expect_nothing_left()

    def test_ranks_of_another_launch_are_told_if_they_do_not_end(self):
        first = self.start(0, 2, "launch=a", "hold@joined", "timeout=1000")
        self.until_said(first, "holding")
        at_ns = time.monotonic_ns()
        refused = self.expect_refusal(self.start(1, 2, "launch=b"), NOT_READY, r"another launch",
                                      r"\brank 0\b", rf"\b{first.process.pid}\b")
        self.expect_soon([refused], at_ns, 7)
        first.go_on()
        self.expect_failure([first], LATE, r"\brank 1\b", r"another launch")

    def test_a_launch_has_a_length(self):
        for launch in ("", "x" * 65):
            with self.subTest(launch=launch):
                self.expect_refusal(self.start(0, 1, f"launch={launch}"), INVALID,
                                    r"jc_group_params: launch")
        self.expect_ok([self.start(0, 1, f"launch={'ü' * 32}")])

    def test_another_size_of_job_follows_a_crashed_one(self):
        ranks = self.start_all(3, "hold@joined")
        for rank in ranks:
            self.until_said(rank, "holding")
        for rank in ranks:
            rank.kill()
        again = self.start_all(2, *self.templates(1, 2))
        self.expect_ok(again, loaded=3)
        self.expect_end(again)
        self.expect_nothing_left()

    def test_a_forked_child_of_a_crashed_job_is_in_nobodys_way(self):
        words = self.templates(1, 2)
        for child in ("fork", "clone"):
            with self.subTest(child=child):
                ranks = self.start_all(2, *words, f"{child}@joined", "hold@joined")
                for rank in ranks:
                    self.until_said(rank, "holding")
                for rank in ranks:
                    rank.kill()
                again = self.start_all(2, *words)
                self.expect_ok(again, loaded=3)
                self.expect_end(again)
                self.release()

    def test_a_rank_that_is_started_again_joins_the_group_that_waits(self):
        words = [*self.templates(1, 2), "timeout=20000"]
        first = self.start(0, 2, *words, "hold@joined")
        second = self.start(1, 2, *words, "hold@joined")
        for rank in (first, second):
            self.until_said(rank, "holding")
        second.kill()
        again = self.start(1, 2, *words)
        self.until(lambda: again.last("refused") or again.last("warming"), "it answers", 10)
        first.go_on()
        # The group had come together once: whoever is of another job is told so. Either is bounded.
        if again.last("refused"):
            self.assertEqual(again.last("refused")["result"], NOT_READY, self.tell())
            self.expect_failure([first], PEER, r"\brank 1\b")
        else:
            self.expect_ok([first, again])

    def test_a_gate_that_stays_shut_hangs_nobody(self):
        first = self.start(0, 2, "hold@joined", "timeout=1000")
        self.until_said(first, "holding")
        # As if somebody had been stopped within.
        with open(self.groups / "job.group", "r+b") as file:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, LOCK_OF_GATE)
            at_ns = time.monotonic_ns()
            refused = self.expect_refusal(self.start(1, 2), NOT_READY, r"job\.group")
            self.expect_soon([refused], at_ns, 10)
            first.go_on()
            self.expect_failure([first], LATE, r"\brank 1\b")
            self.expect_end([first], 10)

    def test_another_version_of_the_library_is_refused(self):
        first = self.start(0, 2, "hold@joined", "timeout=3000")
        self.until_said(first, "holding")
        path = self.groups / "job.group"
        head = path.read_bytes()[:128]
        version = re.search(rb"\d+\.\d+\.\d+", head)
        self.assertTrue(version, head)
        with open(path, "r+b") as file:
            file.seek(version.start())
            file.write(b"9")
        refused = self.expect_refusal(self.start(1, 2), DIFFER, r"\b9\.\d+\.\d+\b")
        self.assertRegex(refused["text"], r"\b0\.\d+\.\d+\b")
        first.go_on()
        self.expect_failure([first], LATE, r"\brank 1\b")

    def test_what_lies_there_in_place_of_the_file(self):
        path = self.groups / "job.group"

        def garbage():
            path.write_bytes(b"another's" * 10000)

        def link():
            path.symlink_to(self.folder / "elsewhere")

        def folder():
            path.mkdir()

        def fifo():
            os.mkfifo(path)
        for lay in (garbage, link, folder, fifo):
            with self.subTest(what=lay.__name__):
                lay()
                at_ns = time.monotonic_ns()
                refused = self.expect_refusal(self.start(0, 2), IO, r"job\.group")
                self.expect_soon([refused], at_ns, 8)
                self.assertFalse((self.folder / "elsewhere").exists())
                path.rmdir() if lay is folder else path.unlink()

    def test_a_file_that_was_not_finished_is_begun_anew(self):
        for size in (0, 128, 1 << 16):
            with self.subTest(size=size):
                (self.groups / "job.group").write_bytes(bytes(size))
                ranks = self.start_all(2)
                self.expect_ok(ranks)
                self.expect_end(ranks)
                self.expect_nothing_left()

    def test_a_folder_that_cannot_be_used_is_named(self):
        missing, others = self.folder / "missing", self.folder / "others"
        others.mkdir()
        others.chmod(0o777)
        file = self.write("file", "")
        for folder in (missing, others, file):
            with self.subTest(folder=str(folder)):
                self.expect_refusal(self.start(0, 1, folder=folder), IO, re.escape(str(folder)))
        self.expect_refusal(self.start(0, 1, folder="groups"), INVALID, r"'groups'")

    # --- mounts and namespaces -------------------------------------------------------------------

    PRIVATE = ["unshare", "-m", "--propagation", "private"]

    def start_in(self, mount, number, ranks, *words, **options):
        """In a mount namespace of its own, after that command."""
        return self.start(number, ranks, *words, **options,
                          before=[*self.PRIVATE, "sh", "-c", f'{mount} && exec "$@"', "-"])

    def test_a_full_folder_is_told_and_not_met_later(self):
        self.require(*self.PRIVATE)
        mount = (f"mount -t tmpfs -o size=64k,mode=700 tmpfs {self.groups}"
                 f" && head -c 61440 /dev/zero > {self.groups}/full")
        self.expect_refusal(self.start_in(mount, 0, 8), IO, re.escape(str(self.groups)), r"space")

    def test_a_folder_that_cannot_be_written_is_named(self):
        self.require(*self.PRIVATE)
        mount = (f"mount --bind {self.groups} {self.groups}"
                 f" && mount -o remount,bind,ro {self.groups}")
        self.expect_refusal(self.start_in(mount, 0, 2), IO, re.escape(str(self.groups)))

    def test_a_limit_of_file_sizes_is_told_and_kills_nobody(self):
        self.expect_refusal(self.start(0, 8, before=["sh", "-c", 'ulimit -f 16 && exec "$@"',
                                                     "-"]), IO, r"limit")

    def test_without_memory_to_share_the_cache_has_the_file(self):
        self.require(*self.PRIVATE)
        folder = self.folder / "empty"
        folder.mkdir(mode=0o555)
        mount = (f"mount --bind {folder} /dev/shm && mount -o remount,bind,ro /dev/shm")
        words = self.templates(1, 2)
        ranks = [self.start_in(mount, i, 2, *words, folder="") for i in range(2)]
        self.expect_ok(ranks, loaded=3)
        self.expect_end(ranks)
        self.assertEqual(list(self.cache.glob("**/*.group")), [])

    def test_the_file_is_in_memory_that_is_shared_unless_said_otherwise(self):
        self.require(*self.PRIVATE)
        first = self.start_in("mount -t tmpfs -o mode=1777 tmpfs /dev/shm", 0, 2, "hold@joined",
                              folder="")
        self.until_said(first, "holding")
        beside = ["nsenter", f"--mount=/proc/{first.process.pid}/ns/mnt"]
        self.require(*beside)
        # As the first rank sees it: its own file system in memory is mounted there.
        seen = Path("/proc", str(first.process.pid), "root", "dev", "shm")
        path = seen / f"jitcache-{os.getuid()}" / "job.group"
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        second = self.start(1, 2, "hold@opened", folder="", before=beside)
        first.go_on()
        self.expect_ok([second])
        second.go_on()
        self.expect_end([first, second])

    def test_ranks_of_different_pid_namespaces_meet(self):
        alone = ["unshare", "--pid", "--fork", "--kill-child"]
        self.require(*alone)
        words = self.templates(1, 2)
        for more in ([], ["--mount-proc"]):
            with self.subTest(more=more):
                before = [*alone, *more]
                ranks = [self.start(i, 3, *words, before=before if i else ()) for i in range(3)]
                self.expect_ok(ranks, loaded=3)
                self.expect_end(ranks)
                self.expect_nothing_left()

    def test_a_rank_of_another_pid_namespace_that_dies_is_named(self):
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.require(*alone)
        ranks = [self.start(i, 3, *self.templates(1, 2), "timeout=20000",
                            *(["hold@joined"] if i == 2 else []), before=alone)
                 for i in range(3)]
        self.until_said(ranks[2], "holding")
        for rank in ranks[:2]:
            self.until_said(rank, "warming")
        # The process that was started is unshare; its child dies with it.
        at_ns = ranks[2].kill()
        self.expect_soon(self.expect_failure(ranks[:2], PEER, r"\brank 2\b"), at_ns, SOON_S + 0.5)


class Seeing(crew.Case):
    def test_stats_has_a_row_for_each_rank(self):
        ranks = self.start_all(3, *self.templates(1, 6), name="tp")
        verdicts = self.expect_ok(ranks)
        self.expect_end(ranks)
        groups = self.json("stats")["statistics"]["groups"]
        self.assertEqual([(group["group"], group["ranks"], group["open"]) for group in groups],
                         [("tp", 3, True)])
        rows = sorted(groups[0]["told"], key=lambda row: row["rank"])
        self.assertEqual([(row["rank"], row["compiled"]) for row in rows],
                         [(i, verdicts[i]["compiled"]) for i in range(3)])
        for row, verdict in zip(rows, verdicts):
            self.assertEqual(row["waited_ns"], verdict["waited_ns"])
        self.assertRegex(self.run_command("stats").out, r"(?m)^.*\btp\b.*\b3 ranks\b")

    def test_who_compiled_is_told_from_those_who_waited_for_it(self):
        self.hold.touch()
        ranks = self.start_all(4, *self.templates(1, 1), name="tp", JITCACHE_JOBS="1")
        for rank in ranks:
            self.until_said(rank, "warming")
        time.sleep(1.5)  # they wait for each other, which is what this is about
        self.hold.unlink()
        verdicts = self.expect_ok(ranks, loaded=2)
        self.expect_end(ranks)
        group, = self.json("stats")["statistics"]["groups"]
        idle = [row for row in group["told"] if not row["compiled"]]
        self.assertEqual(len(group["told"]), 4)
        self.assertTrue(idle)
        for row in idle:
            self.assertGreater(row["waited_ns"], SECOND)
            self.assertEqual(row["waited_ns"], verdicts[row["rank"]]["waited_ns"])
        self.assertNotIn(group["awaited"], [row["rank"] for row in idle])


if __name__ == "__main__":
    harness.main()
