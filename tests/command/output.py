"""Output that gets lost is a failure, told in one message; but a reader that went away knows."""
import os
import signal
import subprocess
import unittest

import harness
from harness import COMMAND, ROPE, SILU

WORDS = [["--help"], ["--version"], ["plan", "--help"], ["plan", ROPE], ["plan", ROPE, "--json"],
         ["ls", "--json"], ["stats"], ["prewarm", SILU, "--arch", "sm_90a", "--check"]]


class Output(harness.Case):
    def lost(self, words, **options):
        done = subprocess.run([COMMAND, *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              env=self.env, timeout=harness.LIMIT_S, **options)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, 2, message)
        self.assertRegex(message, r"\Ajitcache: standard output: cannot write: .+\n\Z")
        self.assertNotIn("earlier", message)  # that would not be the reason

    def test_a_full_disk_is_told(self):
        with open("/dev/full", "wb") as full:
            for words in WORDS:
                self.lost(words, stdout=full)

    def test_a_reader_that_is_gone_is_told_nothing(self):
        for words in WORDS:
            reader, writer = os.pipe()
            os.close(reader)
            # Python ignores the signal, the programs that people start it from do not.
            done = subprocess.run([COMMAND, *words], stdin=subprocess.DEVNULL, stdout=writer,
                                  stderr=subprocess.PIPE, env=self.env, timeout=harness.LIMIT_S,
                                  preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (2, b""), words)

    def test_a_closed_standard_output_is_told(self):
        for words in WORDS:
            self.lost(words, preexec_fn=lambda: os.close(1))

    def test_with_all_streams_closed_nothing_lands_in_the_cache(self):
        self.fill()
        before = {path.name: path.read_bytes() for path in self.cache.iterdir()}
        done = subprocess.run([COMMAND, "ls"], env=self.env, timeout=harness.LIMIT_S,
                              preexec_fn=lambda: [os.close(stream) for stream in range(3)])
        self.assertEqual(done.returncode, 2)
        self.assertEqual({path.name: path.read_bytes() for path in self.cache.iterdir()}, before)


if __name__ == "__main__":
    harness.main()
