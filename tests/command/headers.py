"""Precompiled headers, from the template's choice to the worker's folder."""
import os
import re

import harness

ARCH = ["--arch", "sm_90a"]

DESCRIBED = """kernel: headed
parameters: [{name: N, type: int}]
arguments: [{name: x, type: f32*}]
"""
SOURCE = """#include <jitcache.cuh>
#include <cuda_fp16.h>
extern "C" __global__ void headed(float *x) { x[0] = __half2float(__int2half_rn(JC_PARAM(N))); }
"""


class Headers(harness.Case):
    def setUp(self):
        super().setUp()
        self.temporary = self.folder / "temporary"
        self.temporary.mkdir()
        self.env["TMPDIR"] = str(self.temporary)
        self.source = self.write("headed.cu", SOURCE)
        doctor = self.run_command("prewarm", self.described(), *ARCH, "--param", "N=0", "-v").err
        found = re.search(r"NVRTC (\d+)\.(\d+) at (\S+),", doctor)
        self.known = (int(found[1]), int(found[2])) >= (12, 8)
        self.count = self.folder / "count"
        self.env.update(JITCACHE_NVRTC=os.environ["JITCACHE_FORWARD_NVRTC"],
                        JITCACHE_REAL_NVRTC=found[3], JITCACHE_NVRTC_COUNT=str(self.count))

    def described(self, more=""):
        return self.write("headed.yaml", DESCRIBED + more)

    def prewarm(self, path, values):
        report = self.json("prewarm", path, *ARCH, "--param", "N=" + values)
        self.assertEqual(report["failed"], 0)
        return report

    def compiles(self):
        lines = self.count.read_text().splitlines() if self.count.exists() else []
        self.count.unlink(missing_ok=True)
        return lines

    def test_a_worker_keeps_headers_where_the_template_wants_it(self):
        self.prewarm(self.described("pch: true\n"), "1,2,3")
        compiles = self.compiles()
        self.assertEqual(len(compiles), 3)
        folders = {re.search(r"--pch-dir=(\S*)", line)[1] for line in compiles if "--pch" in line}
        if self.known:
            self.assertEqual(sum("--pch " in line for line in compiles), 3)
            for folder in folders:
                self.assertTrue(folder.startswith(f"{self.temporary}/jitcache-pch-"), folder)
        else:
            self.assertEqual(folders, set())
        self.assertEqual(list(self.temporary.glob("jitcache-pch-*")), [])
        self.prewarm(self.described(), "4")
        self.assertNotIn("--pch", "".join(self.compiles()))

    def test_the_choice_is_no_part_of_the_key(self):
        self.prewarm(self.described("pch: true\n"), "1,2")
        report = self.prewarm(self.described("pch: false\n"), "1,2")
        self.assertEqual((report["compiled"], report["hits"]), (0, report["planned"]))


if __name__ == "__main__":
    harness.main()
