#!/usr/bin/python3
"""The quickstart, a few steps of it, in a copy of the source: it trains, says where to look, and does nothing twice.

The copy shares the build folder's compiler cache and the set-up of this computer; nothing is downloaded.
"""
import json
import os
import re
import shutil
import subprocess
import unittest

from support import BUILD, SOURCE, HostTest, read_metrics

SOURCES = ("CMakeLists.txt", "CMakePresets.json", "VERSION", "apps", "cmake", "core", "examples", "plugins", "scripts", "sdk")


class Quickstart(HostTest):
    def setUp(self):
        super().setUp()
        self.top = self.folder / "checkout"
        self.top.mkdir()
        for name in SOURCES:
            (self.top / name).symlink_to(SOURCE / name)
        # scripts/ is copied: they find the source by where they lie.
        (self.top / "scripts").unlink()
        shutil.copytree(SOURCE / "scripts", self.top / "scripts")
        # What is built already counts as built; the scripts only have to find it.
        self.shims = self.folder / "shims"
        self.shims.mkdir()
        (self.shims / "cmake").write_text("#!/bin/sh\nexit 0\n")
        (self.shims / "cmake").chmod(0o755)
        (self.top / "build").mkdir()
        (self.top / "build/release").symlink_to(BUILD)

    def quickstart(self, *arguments, code=0):
        result = subprocess.run(["scripts/quickstart.sh", *arguments], cwd=self.top, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                env={**os.environ, "PATH": f"{self.shims}:{os.environ['PATH']}", "OMP_NUM_THREADS": "2"})
        return self.assert_ok(result, code)

    def test_quick_run(self):
        first = self.quickstart("--quick").stdout
        self.assertRegex(first, r"Preparing data: the Python source in /usr/lib/python3\.\d+")
        bits = float(re.search(r"Held-out Python source: ([\d.]+) bits per byte", first)[1])
        self.assertLess(bits, 8)
        for word in ("Where to look", "What to try next", "runs/quickstart/checkpoint/"):
            self.assertIn(word, first)
        for command in re.findall(r"^  (build/release/bin/fastllm-host .*)$", first, re.M):
            with self.subTest(command):
                result = subprocess.run(["bash", "-c", command if "--validate" in command else command + " --validate"], cwd=self.top, capture_output=True, text=True)
                self.assert_ok(result)
        held_out = [m for m in read_metrics(self.top / "runs/quickstart") if m["phase"].startswith("validation")]
        self.assertEqual([m["iteration"] for m in held_out], [10, 20])

        second = self.quickstart("--quick").stdout
        self.assertNotIn("Installing", second)
        self.assertNotIn("Preparing data:", second)
        self.assertIn("runs/quickstart-2", second)

    def test_held_out_files_are_not_trained_on(self):
        self.quickstart("--quick", "training.train_iters=1")
        data = self.top / "runs/quickstart-data"
        text = {split: (data / f"fast_llm_config_{split}.yaml").read_text() for split in ("training", "validation")}
        paths = {split: set(re.findall(r"path: (\S+)", content)) for split, content in text.items()}
        self.assertTrue(paths["training"] and paths["validation"])
        self.assertFalse(paths["training"] & paths["validation"])

    def test_bad_usage(self):
        self.quickstart("--fast", code=2)


if __name__ == "__main__":
    unittest.main()
