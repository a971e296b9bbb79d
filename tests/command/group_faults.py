"""A group of ranks, again and again, each time with one random fault at a random moment.

Whatever happens: nobody hangs, ranks that nothing has befallen agree on what came of it and name
the one that something has, and the next job of that name finds nothing in its way.

JITCACHE_TEST_LONG=1 takes 200 runs in place of 40; JITCACHE_TEST_SEED=N the runs of that seed.
"""
import os
import random
import shutil
import signal
import time

import crew
import harness
from crew import DIFFER, LATE, NOT_READY, OK, PEER, SECOND

RANKS = 4
TIMEOUT_S = 2    # for what waits for it
COLD_S = 20      # where there is something to compile
GRACE_S = 2      # beyond the time limit
RUNS = 200 if os.environ.get("JITCACHE_TEST_LONG") == "1" else 40
SEED = int(os.environ.get("JITCACHE_TEST_SEED") or random.SystemRandom().randrange(1 << 32))

FAILED = "any failure"


class Fault:
    """What happens in one run: to which rank, and what may come of it."""

    cold = False  # the cache is empty at first, and may have anything in it afterwards

    def __init__(self, case, rng):
        self.case, self.rng = case, rng
        self.victim = rng.randrange(RANKS)
        self.words, self.env = [], {}   # of the victim
        self.everybody = []             # words of all
        self.befallen = {self.victim}   # what they return does not matter
        self.comes = True               # far enough to hold
        self.starts = True
        self.allowed = {OK}             # results of the others
        self.named = True               # in their failures
        self.statuses = {0, -signal.SIGKILL}  # with which the befallen may end

    def prepare(self):
        """Once all have joined."""

    def act(self):
        """While ranks warm up."""

    def settle(self):
        """Once the others have ended."""

    def send(self, number):
        self.case.ranks[self.victim].signal(number)


class Nothing(Fault):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set()


class Lost(Fault):
    """The victim is gone for good; others may be asked to go on without it."""

    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.allowed = {OK, PEER, LATE}
        if rng.random() < 0.4:
            self.everybody = ["without_lost"]
            self.allowed = {OK}


class Killed(Lost):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.cold = rng.random() < 0.3

    def act(self):
        self.send(signal.SIGKILL)


class KilledWithChild(Killed):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.words = [rng.choice(["fork", "clone"]) + "@joined"]


class EndsByItself(Lost):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        where = rng.choice(["start", "made", "joined", "progress", "ready", "opened"])
        ways = ["kill", "exit", "leave"]
        self.words = [f"{rng.choice(ways if where in ('joined', 'opened') else ways[:2])}@{where}"]
        self.comes = where not in ("start", "made", "joined")


class NeverComes(Lost):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.starts = self.comes = False
        self.allowed -= set() if self.everybody else {OK}


class Stopped(Lost):
    """It is told to go on once the others have ended, and finds out by itself."""

    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.cold = rng.random() < 0.2
        if rng.random() < 0.5:
            self.words = [f"stop@{rng.choice(['progress', 'loading', 'ready', 'opened'])}"]

    def act(self):
        if not self.words:
            self.send(signal.SIGSTOP)

    def settle(self):
        self.send(signal.SIGCONT)


class StoppedForAMoment(Fault):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set()

    def act(self):
        self.send(signal.SIGSTOP)
        time.sleep(0.3)
        self.send(signal.SIGCONT)


class GivesUp(Fault):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.cold = rng.random() < 0.5
        self.befallen = set()
        self.words = [f"refuse@{rng.choice(['progress', 'ready'])}"]
        # A rank that is not asked in time has nothing to say.
        self.allowed = {OK, NOT_READY}


class PlansOther(Fault):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set()
        self.words = rng.choice([case.other, ["range=n=1:2"]])
        self.allowed = {DIFFER}


class CannotCompile(Fault):
    """Whoever compiles with it fails; what others have compiled it takes."""

    cold = True

    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set()
        self.env = {"JITCACHE_NVRTC_ACT": rng.choice(["fail", "kill", "exit", "abort"])}
        self.allowed = {OK, FAILED}
        self.named = False


class CompilerDies(Fault):
    """Once: the library tries again."""

    cold = True

    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set()
        file = case.folder / f"died-{rng.random()}"
        self.env = {"JITCACHE_NVRTC_ACT": f"kill:{file}"}
        self.allowed = {OK, FAILED}
        self.named = False


class WorkersKilled(Fault):
    """All that there are at that moment, from outside."""

    cold = True

    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set()
        self.allowed = {OK, FAILED}
        self.named = False

    def act(self):
        for pid in self.case.workers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class CacheRemoved(Fault):
    cold = True

    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set()
        self.allowed = {OK, FAILED}
        self.named = False

    def act(self):
        shutil.rmtree(self.case.cache, ignore_errors=True)


class FileRemoved(Fault):
    """Ranks have it mapped, and go on in it."""

    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set()

    def act(self):
        for path in self.case.groups.iterdir():
            path.unlink(missing_ok=True)


class Scribbled(Fault):
    """Whoever may write the file may make ranks fail, each as it sees it, but not crash or hang."""

    def __init__(self, case, rng):
        super().__init__(case, rng)
        self.befallen = set(range(RANKS))
        self.statuses = {0}
        if rng.random() < 0.5:
            self.prepare, self.act = self.act, self.prepare

    def act(self):
        for path in self.case.groups.glob("job.group"):
            with open(path, "r+b", buffering=0) as file:
                text = file.read()
                words = range(0, len(text) - 7, 8)
                used = [at for at in words if any(text[at:at + 8])]
                for _ in range(self.rng.choice([1, 4, 30])):
                    file.seek(self.rng.choice(self.rng.choice([used, used, words])))
                    file.write(self.rng.choice([self.rng.randbytes(8), bytes(8), b"\xff" * 8,
                                                self.rng.randrange(64).to_bytes(8, "little")]))


KINDS = [Nothing, Killed, KilledWithChild, EndsByItself, NeverComes, Stopped, StoppedForAMoment,
         GivesUp, PlansOther, CannotCompile, CompilerDies, WorkersKilled, CacheRemoved,
         FileRemoved, Scribbled, Killed, EndsByItself, Stopped]


class Faults(crew.Case):
    def setUp(self):
        super().setUp()
        self.kernels = self.templates(2, 3)
        other = self.template("k0", 3, rounds=20, file="other")
        self.other = [f"kernel={other}"]
        self.is_filled = False

    def fill_cache(self):
        """By a group of one, of another name: it leaves nothing, and clears up after others."""
        if not self.is_filled:
            shutil.rmtree(self.cache, ignore_errors=True)
            rank = self.start(0, 1, *self.kernels, name="fill")
            self.expect_ok([rank])
            self.expect_end([rank])
            self.assertEqual(os.listdir(self.groups), [])
            self.release()
            self.is_filled = True

    def empty_cache(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        self.is_filled = False

    def workers(self):
        """Of this test's ranks."""
        return [pid for pid, command in self.left_running().items()
                if b"jitcache-worker" in command]

    def play(self, fault):
        """One run: ranks go on together from where they have all joined, but for who does not."""
        self.empty_cache() if fault.cold else self.fill_cache()
        timeout_s = COLD_S if fault.cold else TIMEOUT_S
        for i in range(RANKS):
            words = [*self.kernels, f"timeout={timeout_s * 1000}", *fault.everybody]
            hit = i == fault.victim
            if hit and not fault.starts:
                words = ["exit@start"]
            self.start(i, RANKS, *words, *(fault.words if hit else []), "hold@joined",
                       **(fault.env if hit else {}))
        waiting = [rank for rank in self.ranks if fault.comes or rank.number != fault.victim]
        for rank in waiting:
            self.until(lambda rank=rank: rank.last("holding") or rank.last("refused"),
                       f"rank {rank.number} joins", 20)
        fault.prepare()
        begin_ns = time.monotonic_ns()
        for rank in waiting:
            rank.go_on()
        time.sleep(fault.rng.random() ** 2 * 0.3)
        fault.act()
        others = [rank for rank in self.ranks if rank.number not in fault.befallen]
        befallen = [rank for rank in self.ranks if rank.number in fault.befallen]
        limit_ns = begin_ns + (timeout_s + GRACE_S) * SECOND
        self.expect_end_by(others, limit_ns)
        fault.settle()
        self.expect_end_by(befallen, max(limit_ns, time.monotonic_ns() + GRACE_S * SECOND))
        self.assertLessEqual({rank.process.returncode for rank in befallen}, fault.statuses,
                             self.tell())
        if others:
            self.judge(fault, others)

    def expect_end_by(self, ranks, limit_ns):
        for rank in ranks:
            self.until(lambda rank=rank: rank.ended, f"rank {rank.number} ends",
                       max(0, limit_ns - time.monotonic_ns()) / SECOND)

    def judge(self, fault, others):
        verdicts = [rank.last("warm") for rank in others]
        self.assertNotIn(None, verdicts, self.tell())
        self.assertEqual([rank.process.returncode for rank in others], [0] * len(others),
                         self.tell())
        results = {verdict["result"] for verdict in verdicts}
        self.assertEqual(len({result == OK for result in results}), 1, self.tell())
        if FAILED not in fault.allowed:
            self.assertLessEqual(results, fault.allowed, self.tell())
        for verdict in verdicts:
            if verdict["result"] == OK:
                self.assertEqual(verdict["loaded"], verdict["planned"], self.tell())
            else:
                self.assertRegex(verdict["text"], rf"\branks?\b.*\b{fault.victim}\b"
                                 if fault.named else r"\brank", self.tell())

    def test_nobody_hangs_and_all_agree(self):
        print(f"\nseed {SEED}, {RUNS} runs")
        order, played = random.Random(SEED), []
        while len(played) < RUNS:
            played += order.sample(KINDS, len(KINDS))
        for run, kind in enumerate(played[:RUNS]):
            with self.subTest(seed=SEED, run=run, kind=kind.__name__):
                try:
                    self.play(kind(self, random.Random(f"{SEED}-{run}")))
                finally:
                    self.release()
        # What is left is in nobody's way, and goes with the last one that ends in order.
        self.empty_cache()
        ranks = self.start_all(RANKS, *self.kernels)
        self.expect_ok(ranks)
        self.expect_end(ranks)
        self.expect_nothing_left()


if __name__ == "__main__":
    harness.main()
