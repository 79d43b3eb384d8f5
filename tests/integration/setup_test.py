#!/usr/bin/python3
"""The set-up script: each thing a computer may lack ends it with one sentence, and what was done once stays done.

The lacks are real: no network is a network namespace, no disk a small file system, not root another user.
LibTorch is a wheel of a few bytes here, so nothing is downloaded.
"""
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ROOT = os.geteuid() == 0
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def works(*command):
    return subprocess.run(command, capture_output=True).returncode == 0


# Namespaces need root, or a kernel that lets users have their own.
UNSHARE = next((u for u in (["unshare"], ["unshare", "--map-root-user"]) if works(*u, "-m", "-n", "true")), None)
needs_namespaces = unittest.skipUnless(UNSHARE, "namespaces are not allowed here")


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fastllm-setup-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder.chmod(0o755)
        shutil.copytree(SOURCE / "scripts", self.folder / "scripts")
        self.script = self.folder / "scripts" / "setup.sh"
        self.cache = self.folder / "cache"
        self.shims = self.folder / "shims"
        self.shims.mkdir()
        self.wheels = self.folder / "wheels"
        self.wheels.mkdir()
        wheel = self.wheels / "torch-2.11.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("torch/lib/libtorch_cpu.so", "no library")
            archive.writestr("torch-2.11.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
            archive.writestr("torch-2.11.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr("torch-2.11.0.dist-info/RECORD", "torch/lib/libtorch_cpu.so,,\n")
        self.pin(hashlib.sha256(wheel.read_bytes()).hexdigest())
        self.environment = {
            "PATH": f"{self.shims}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder),
            "FASTLLM_CACHE": str(self.cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "LC_ALL": "C.UTF-8",
        }

    def pin(self, digest):
        for path in (self.folder / "scripts").glob("*-requirements.txt"):
            path.write_text(f"torch==2.11.0 --hash=sha256:{digest}\n")

    def shim(self, name, text):
        path = self.shims / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run_setup(self, *arguments, prefix=(), **environment):
        return subprocess.run([*prefix, "bash", str(self.script), *arguments], env={**self.environment, **environment},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)

    def assert_sentence(self, result, *parts):
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("fastllm: "), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])
        self.assertEqual(result.returncode, 1)

    def in_mounts(self, commands):
        """A prefix that runs what follows with other mounts than ours."""
        return [*UNSHARE, "-m", "bash", "-c", f'set -e; {commands}; exec "$@"', "_"]

    # What is done once is not done again.

    def test_installs_once(self):
        first = self.run_setup("--judges")
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertIn("Installing LibTorch 2.11.0", first.stdout)
        self.assertTrue((self.cache / "libtorch-2.11.0/torch/lib/libtorch_cpu.so").is_file())
        judges, = self.cache.glob("judges-*")
        self.assertTrue(works(judges / "bin/python", "-c", "import torch"))
        self.assertEqual(list(self.cache.glob("setup-*")), [])
        self.wheels.rename(self.folder / "gone")  # a second download would fail
        second = self.run_setup("--judges")
        self.assertEqual((second.returncode, second.stdout, second.stderr), (0, "", ""))

    def test_installs_each_environment_when_asked(self):
        result = self.run_setup("--tokenizers", "--bench")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(list(self.cache.glob("judges-*")), [])
        bench, = self.cache.glob("bench-*")
        litgpt, = self.cache.glob("litgpt-*")
        tokenizers = self.cache / "tokenizers"  # the program looks for this name
        for environment in bench, litgpt, tokenizers:
            self.assertTrue(works(environment / "bin/python", "-c", "import torch"))
        # With other pins, what is there is brought up to date, under the name that goes with them.
        for environment in bench, tokenizers:
            (environment / "kept").touch()
        for name in "bench", "tokenizers":
            pins = self.folder / f"scripts/{name}-requirements.txt"
            pins.write_text(pins.read_text() + "\n")
        result = self.run_setup("--tokenizers", "--bench")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        moved, = self.cache.glob("bench-*")
        self.assertNotEqual(moved, bench)
        for environment in moved, tokenizers:
            self.assertTrue((environment / "kept").exists())
            self.assertTrue(works(environment / "bin/python", "-c", "import torch"))

    def test_new_pins_replace_what_is_there(self):
        self.assertEqual(self.run_setup().returncode, 0)
        stale = self.cache / "libtorch-2.11.0/stale"
        stale.touch()
        pins = self.folder / "scripts/libtorch-requirements.txt"
        pins.write_text(pins.read_text() + "\n")
        result = self.run_setup()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertFalse(stale.exists())
        self.assertTrue((self.cache / "libtorch-2.11.0/torch").is_dir())

    def test_interrupted_install_does_not_look_complete(self):
        process = subprocess.Popen(["bash", str(self.script)], env=self.environment, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not list(self.cache.glob("setup-*/pip")):  # at work on the installation
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.assertFalse((self.cache / "libtorch-2.11.0").exists())
        result = self.run_setup()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue((self.cache / "libtorch-2.11.0/torch").is_dir())
        self.assertEqual(list(self.cache.glob("setup-*")), [])

    # What a computer may lack.

    def test_not_root(self):
        self.shim("dpkg-query", 'for last; do :; done; [ "$last" = g++ ] && exit 1; exec /usr/bin/dpkg-query "$@"')
        self.shim("sudo", "exit 1")
        self.cache.mkdir()
        self.cache.chmod(0o777)
        result = self.run_setup(prefix=NOBODY if ROOT else [])
        self.assert_sentence(result, "expected root or sudo", "found neither", "apt-get install -y", " g++")

    def test_cache_that_cannot_be_written(self):
        self.cache.mkdir()
        self.cache.chmod(0o555)
        result = self.run_setup(prefix=NOBODY if ROOT else [])
        self.assert_sentence(result, "expected a folder to write to", str(self.cache), "set FASTLLM_CACHE")

    def test_no_home(self):
        result = subprocess.run(["bash", str(self.script)], env={"PATH": self.environment["PATH"]}, capture_output=True, text=True)
        self.assert_sentence(result, "expected a cache folder", "set FASTLLM_CACHE")

    @needs_namespaces
    def test_no_network_for_libtorch(self):
        result = self.run_setup(prefix=[*UNSHARE, "-n"], PIP_NO_INDEX="0", PIP_FIND_LINKS="")
        self.assert_sentence(result, "expected a network connection to get LibTorch", "found none", "libtorch.log")
        self.assertFalse((self.cache / "libtorch-2.11.0").exists())

    @unittest.skipUnless(ROOT and UNSHARE, "only root installs packages")
    def test_no_network_for_packages(self):
        package = next(p for p in ("cowsay", "sl", "figlet", "hello") if not works("dpkg-query", "-W", p))
        self.script.write_text(self.script.read_text().replace("BUILD_PACKAGES=(", f"BUILD_PACKAGES=({package}", 1))
        result = self.run_setup(prefix=[*UNSHARE, "-n"])
        self.assert_sentence(result, f"expected a network connection to get system packages ({package})", "found none")

    @needs_namespaces
    def test_no_disk(self):
        self.cache.mkdir()
        result = self.run_setup(prefix=self.in_mounts(f"mount -t tmpfs -o size=64m none {self.cache}"))
        self.assert_sentence(result, "MB of free disk space at", "for LibTorch, found 64 MB", "set FASTLLM_CACHE")

    @needs_namespaces
    def test_other_system(self):
        release = self.folder / "os-release"
        release.write_text('ID=ubuntu\nVERSION_ID="24.04"\n')
        result = self.run_setup(prefix=self.in_mounts(f"mount --bind {release} /etc/os-release"))
        self.assert_sentence(result, "expected Debian 12, found ubuntu 24.04")

    @needs_namespaces
    def test_other_python(self):
        self.shim("python", "echo 3.12")
        result = self.run_setup(prefix=self.in_mounts(f"mount --bind {self.shims / 'python'} /usr/bin/python3"))
        self.assert_sentence(result, "expected Python 3.11 at /usr/bin/python3, found 3.12")

    def test_other_architecture(self):
        self.assert_sentence(self.run_setup(prefix=["setarch", "i686"]), "expected an x86_64 computer, found i686")

    def test_other_file_than_pinned(self):
        self.pin("0" * 64)
        result = self.run_setup()
        self.assert_sentence(result, "expected the files pinned in", "LibTorch", "sent others")
        self.assertFalse((self.cache / "libtorch-2.11.0").exists())

    def test_bad_usage(self):
        result = self.run_setup("--judge")
        self.assertEqual(result.returncode, 2)
        self.assertIn("expected --tokenizers, --judges or --bench", result.stderr)
        self.assertIn("found '--judge'", result.stderr)


if __name__ == "__main__":
    unittest.main()
