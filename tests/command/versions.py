"""The shipped templates under older NVRTCs, those that JITCACHE_TEST_NVRTC12 and ...124 name."""
import os
import sys

import harness
from harness import ROPE, SILU

OLDER = [os.environ[name] for name in ("JITCACHE_TEST_NVRTC12", "JITCACHE_TEST_NVRTC124")
         if os.environ.get(name)]


class Versions(harness.Case):
    def test_each_version_compiles_both_templates_under_keys_of_its_own(self):
        words = ["prewarm", SILU, ROPE, "--arch", "sm_90a", "--param", "scale_format=fp32,ue8m0"]
        planned = self.json(*words)["planned"]
        for older in OLDER:
            with self.subTest(nvrtc=older):
                report = self.json(*words, "--nvrtc", older)
                self.assertEqual((report["compiled"], report["hits"]), (planned, 0))
        keys = {each["key"] for each in self.json("ls", "--kind", "variant")["records"]}
        self.assertEqual(len(keys), planned * (1 + len(OLDER)))
        texts = [self.run_command("show", key, "--key").out for key in keys]
        versions = {text.split("\nnvrtc=")[1].split("\n")[0] for text in texts}
        self.assertEqual(len(versions), 1 + len(OLDER))


if __name__ == "__main__":
    if not OLDER:
        print("skipped: no older NVRTC; scripts/setup --tests fetches them")
        sys.exit(77)
    harness.main()
