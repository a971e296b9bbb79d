"""The completion scripts offer what `--help` lists, in real shells where they are here."""
import os
import pty
import re
import select
import shutil
import subprocess
import time
import unittest
from pathlib import Path

import harness

SHELLS = ["bash", "zsh", "fish"]

# Answers completions: one line of words comes in, NUL separated, the replies go out, then "end".
# What only a real completion can ask readline for is told by its name.
BASH = r"""
source "$1" || exit 1
compopt() { COMPREPLY+=("<$2>"); }
while IFS= read -r line; do
    mapfile -t -d "|" COMP_WORDS <<< "$line"
    COMP_WORDS[-1]=${COMP_WORDS[-1]%$'\n'}
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _jitcache "$COMMAND" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
    printf '%s\n' "${COMPREPLY[@]}" end
done
"""

# Writes what a tab offers to a file, then the line as it is after it.
ZSH = r"""
PS1= RPS1=
autoload -Uz compinit && compinit -u -D
source $SCRIPT
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    local -a hits
    builtin compadd -A hits "$@"
    print -rl -- $hits >> $ANSWER
    builtin compadd "$@"
}
probe() { zle complete-word; print -rl -- end >> $ANSWER; BUFFER=; }
zle -N probe
bindkey '^I' probe
: > $READY
"""


class Completion(harness.Case):
    def setUp(self):
        super().setUp()
        # The scripts call the command by the name that is typed.
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "jitcache").symlink_to(harness.COMMAND)
        self.env["PATH"] = f"{bin_folder}:{os.environ['PATH']}"
        self.env["COMMAND"] = "jitcache"
        self.scripts = {}
        for shell in SHELLS:
            self.scripts[shell] = self.write(f"completion.{shell}",
                                             self.run_command("completion", shell).out)
        (self.folder / "a folder").mkdir()
        self.write("kernel.cu", "")

    # --- asking each shell

    def bash(self, *words):
        done = subprocess.run(["bash", "-c", BASH, "bash", self.scripts["bash"]], env=self.env,
                              input="|".join(words) + "\n", capture_output=True, text=True,
                              cwd=self.folder, timeout=harness.LIMIT_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        *replies, end = done.stdout.splitlines()
        self.assertEqual(end, "end")
        return {reply for reply in replies if reply}

    def fish(self, line):
        done = subprocess.run(["fish", "--no-config", "-c", 'source $argv[1]; complete -C $argv[2]',
                               self.scripts["fish"], line], env=self.env, capture_output=True,
                              text=True, cwd=self.folder, timeout=harness.LIMIT_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return {each.split("\t")[0] for each in done.stdout.splitlines()}

    def zsh(self, line):
        ready, answer = self.folder / "ready", self.folder / "answer"
        for path in ready, answer:
            path.unlink(missing_ok=True)
        start = self.write(".zshrc", ZSH)
        env = {**self.env, "ZDOTDIR": os.path.dirname(start), "SCRIPT": self.scripts["zsh"],
               "READY": str(ready), "ANSWER": str(answer)}
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-d", "-i"], env)
        try:
            self.await_text(terminal, lambda: ready.exists())
            os.write(terminal, line.encode() + b"\t")
            self.await_text(terminal, lambda: answer.exists()
                            and answer.read_text().endswith("end\n"))
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(terminal)
        return {each.strip() for each in answer.read_text().splitlines()[:-1]}

    def await_text(self, terminal, is_there):
        """Lets the shell print until that is so."""
        end, printed = time.monotonic() + harness.LIMIT_S, b""
        while not is_there():
            self.assertLess(time.monotonic(), end, printed)
            if select.select([terminal], [], [], 0.02)[0]:
                printed += os.read(terminal, 65536)

    def ask(self, line):
        """What each shell that is here offers at the end of a line, as words."""
        words = re.split(r"\s+|(=)", line)
        told = {"bash": self.bash(*[word for word in words if word is not None])}
        if shutil.which("fish"):
            told["fish"] = self.fish(line)
        if shutil.which("zsh"):
            told["zsh"] = self.zsh(line)
        return told

    def offered(self, line, wanted, among=None):
        """Checks that every shell offers what is wanted, and of `among` nothing else."""
        for shell, told in self.ask(line).items():
            with self.subTest(shell=shell, line=line):
                self.assertLessEqual(set(wanted), told)
                if among is not None:
                    self.assertEqual(told & set(among), set(wanted))

    # --- what is offered

    def help_of(self, command):
        return re.search(r"\nOptions:\n(.*?)\n\n", self.run_command(command, "--help").out,
                         re.DOTALL)[1]

    def commands(self):
        return re.findall(r"(?m)^  ([a-z]+)  +\w", re.search(
            r"\nCommands:\n(.*?)\n\n", self.run_command("--help").out, re.DOTALL)[1])

    def test_every_option_of_help_is_offered(self):
        for command in self.commands():
            if command == "help":
                continue
            options = re.findall(r"(?m)^ +(?:-\w, )?(--[a-z-]+)", self.help_of(command))
            self.assertGreaterEqual(len(options), 4)
            told = {"bash": self.bash("jitcache", command, "--")}
            if shutil.which("fish"):
                told["fish"] = self.fish(f"jitcache {command} --")
            for shell, offers in told.items():
                with self.subTest(command=command, shell=shell):
                    self.assertEqual({each.rstrip("=") for each in offers}, set(options))
            for option in options:
                for shell in SHELLS:
                    text = Path(self.scripts[shell]).read_text()
                    self.assertIn(option if shell != "fish" else f" -l {option[2:]} ", text)

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not here")
    def test_zsh_offers_every_option_of_help(self):
        for command in ["prewarm", "explain", "stats"]:
            options = set(re.findall(r"(?m)^ +(?:-\w, )?(--[a-z-]+)", self.help_of(command)))
            told = {each.rstrip("=") for each in self.zsh(f"jitcache {command} --")}
            self.assertEqual(told, options)

    @unittest.skipUnless(shutil.which("fish"), "fish is not here")
    def test_fish_is_asked(self):
        self.assertIn("ls", self.fish("jitcache l"))

    def test_commands_are_offered_first_and_behind_help(self):
        commands = self.commands()
        self.assertIn("completion", commands)
        self.offered("jitcache ", commands)
        self.offered("jitcache pl", ["plan"], commands)
        self.offered("jitcache help ex", ["explain"], commands)

    def test_kinds_and_shells_are_offered_as_values(self):
        kinds = ["variant", "failure", "template", "toolchain", "coverage"]
        self.offered("jitcache ls --kind ", kinds)
        self.offered("jitcache show --kind t", ["template", "toolchain"], kinds)
        self.offered("jitcache completion ", SHELLS)
        self.assertEqual(self.bash("jitcache", "ls", "--kind", "=", "v"), {"variant"})
        self.assertEqual(self.bash("jitcache", "ls", "--kind", "="), set(kinds))
        self.assertEqual(self.bash("jitcache", "ls", "--kind=va"), {"--kind=variant"})

    def test_a_value_that_may_be_left_out_is_one_behind_an_equals_sign_alone(self):
        self.offered("jitcache stats --color ", ["auto", "always", "never"])
        self.assertEqual(self.bash("jitcache", "stats", "--openmetrics", "=", "ker"), {"<default>"})
        self.assertEqual(self.bash("jitcache", "stats", "--openmetrics=ker"),
                         {"--openmetrics=kernel.cu"})
        self.assertEqual(self.bash("jitcache", "stats", "--openmetrics", ""), set())
        self.assertIn("--since", self.bash("jitcache", "stats", "--watch", "--"))

    def test_files_are_offered_where_files_are_wanted(self):
        self.assertEqual(self.bash("jitcache", "plan", ""), {"<default>"})
        self.assertEqual(self.bash("jitcache", "ls", "--dir", "a"), {"<dirnames>"})
        self.assertEqual(self.bash("jitcache", "ls", ""), set())
        self.assertEqual(self.bash("jitcache", "prewarm", "--arch", ""), set())
        for ask in [self.fish] * bool(shutil.which("fish")) + [self.zsh] * bool(
                shutil.which("zsh")):
            with self.subTest(shell=ask.__name__):
                self.assertIn("kernel.cu", ask("jitcache plan kern"))
                self.assertNotIn("kernel.cu", ask("jitcache ls kern"))
                self.assertNotIn("kernel.cu", ask("jitcache ls --dir "))
                self.assertIn("a folder",
                              {each.strip("/").replace("\\", "")
                               for each in ask("jitcache ls --dir a")})

    def test_moments_are_offered_as_they_are_written(self):
        words = ["10m", "1h", "1d", "today", "yesterday"]
        self.offered("jitcache stats --since ", words, words)
        self.offered("jitcache report --since to", ["today"], words)

    def test_kernels_of_the_cache_are_offered(self):
        self.fill()
        kernels = {each["kernel"] for each in self.json("ls")["records"]} - {"?"}
        self.assertTrue(kernels)
        self.offered("jitcache ls --kernel ", kernels)
        kernel = sorted(kernels)[0]
        self.offered(f"jitcache explain --last --kernel {kernel[:2]}", [kernel])
        self.offered("jitcache ls --kernel none", [], kernels)

    def test_keys_of_the_cache_are_offered(self):
        self.offered("jitcache show ", [])
        self.assertFalse(self.cache.exists())
        self.fill()
        keys = {each["key"][:12] for each in self.json("ls")["records"]}
        self.offered("jitcache show ", keys)
        key = sorted(keys)[0]
        self.offered(f"jitcache show {key[:6]}", [key], keys)
        self.offered(f"jitcache explain {key} ", keys)

    def test_keys_are_those_of_the_folder_that_is_named(self):
        self.fill()
        keys = {each["key"][:12] for each in self.json("ls")["records"]}
        other = self.folder / "other"
        self.cache.rename(other)
        self.offered("jitcache show ", [], keys)
        self.offered(f"jitcache show --dir {other} ", keys)
        self.assertEqual(self.bash("jitcache", "show", "--dir", "=", str(other), ""), keys)

    def test_behind_two_dashes_there_are_no_options(self):
        self.assertEqual(self.bash("jitcache", "ls", "--", "--"), set())
        self.assertEqual(self.bash("jitcache", "ls", "--kind", "--", ""), set())

    # --- the scripts themselves

    def test_each_script_is_read_without_a_word(self):
        for shell in SHELLS:
            if not shutil.which(shell):
                continue
            done = subprocess.run([shell, "-n", self.scripts[shell]], capture_output=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""), shell)

    def test_the_installed_script_is_what_the_command_prints(self):
        for shell, name in [("bash", "jitcache"), ("zsh", "_jitcache"), ("fish", "jitcache.fish")]:
            built = Path(os.environ["JITCACHE_COMPLETIONS"]) / name
            if not built.exists():
                self.skipTest("nothing is installed where the command cannot be run")
            self.assertEqual(built.read_text(), self.run_command("completion", shell).out)

    def test_json_has_the_shell_and_the_script(self):
        told = self.json("completion", "zsh")
        self.assertEqual(set(told), {"shell", "script"})
        self.assertEqual(told["script"], self.run_command("completion", "zsh").out)

    def test_wrong_use_is_told(self):
        for words, wanted in [([], "a shell is missing"), (["tcsh"], "none of bash, zsh and fish"),
                              (["bash", "zsh"], "one shell at a time")]:
            self.assertIn(wanted, self.complaint("completion", *words))


if __name__ == "__main__":
    harness.main()
