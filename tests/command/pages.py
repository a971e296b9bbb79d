"""The man pages are well formed and name every option and every JSON name."""
import re
import shutil
import subprocess
import unittest

import harness

COMMANDS = ["prewarm", "plan", "lint", "stats", "ls", "show", "explain", "clear", "doctor",
            "completion", "report"]

# What stands around a block of a page that is no program of its own. The driver's types and its
# launch are declared as in cuda.h, which need not be here.
AROUND = """#include <stdio.h>
#include <jitcache/jitcache.h>
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
int cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   CUstream, void **, void **);
bool launch_a_step(CUstream stream);
void block(struct jc_context *context, struct jc_device *device, const struct jc_template *tmpl,
           struct jc_kernel *kernel, CUstream stream, void *const *args, float *x, int n);
void block(struct jc_context *context, struct jc_device *device, const struct jc_template *tmpl,
           struct jc_kernel *kernel, CUstream stream, void *const *args, float *x, int n)
{
    struct jc_error error = {0};
    float factor = 1;
    unsigned rank = 0;
    uint64_t step = 0;
    const char *launch = NULL;
    struct jc_group *group = NULL;
    struct jc_group_kernel kernels[1] = {0};
    (void) rank, (void) step, (void) launch, (void) group, (void) kernels;
    (void) context, (void) device, (void) tmpl, (void) kernel, (void) stream, (void) args;
    (void) x, (void) n, (void) factor, (void) error;
    {
        %s
    }
}
"""

COMMON = {"dir", "json", "verbose", "help"}


class Pages(harness.Case):
    @unittest.skipUnless(shutil.which("groff"), "groff is not here")
    def test_the_formatter_has_nothing_to_say(self):
        for page in sorted((harness.ROOT / "man").glob("*.1")):
            done = subprocess.run(["groff", "-mandoc", "-ww", "-z", "-Tutf8", page],
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)

    def test_every_option_has_its_paragraph(self):
        for command in COMMANDS:
            options = set(re.findall(r"--([a-z]+)", re.search(
                r"\nOptions:\n(.*?)\n\n", self.run_command(command, "--help").out, re.DOTALL)[1]))
            self.assertLessEqual(COMMON, options)
            text = (harness.ROOT / "man" / f"jitcache-{command}.1").read_text()
            general = (harness.ROOT / "man" / "jitcache.1").read_text()
            for option in sorted(options):
                page = general if option in COMMON else text
                self.assertRegex(page, rf"\.It .*\bFl -{option}\b", f"{command} --{option}")

    def test_every_command_has_a_page_that_the_first_one_names(self):
        general = (harness.ROOT / "man" / "jitcache.1").read_text()
        for command in COMMANDS:
            self.assertIn(f".Xr jitcache-{command} 1", general)

    @unittest.skipUnless(shutil.which("cc"), "cc is not here")
    def test_the_code_of_the_pages_compiles(self):
        for name in ("README.md", "docs/api.md"):
            blocks = re.findall(r"```c\n(.*?)```", (harness.ROOT / name).read_text(), re.DOTALL)
            self.assertGreater(len(blocks), 1, name)
            self.compile_blocks(blocks)

    def compile_blocks(self, blocks):
        for block in blocks:
            code = block if "int main(" in block else AROUND % block
            done = subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Werror",
                                   "-fsyntax-only", "-I", harness.ROOT / "include",
                                   self.write("block.c", code)],
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), block)


if __name__ == "__main__":
    harness.main()
