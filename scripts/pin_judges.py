#!/usr/bin/env python3
"""Writes judges-requirements.txt: the packages of one environment with the hash of the wheel each comes from.

    python3 -m venv /tmp/judges && /tmp/judges/bin/pip install --upgrade pip torch==2.11.0 transformers jsonschema pyyaml
    /tmp/judges/bin/python scripts/pin_judges.py
"""
import json
import pathlib
import subprocess
import sys
import tempfile

HEADER = """\
# Python packages of the tests' judges (PyTorch and Transformers as references, schema and file checks), pinned by version and content.
# Installed by scripts/setup.sh --judges into an environment of their own; the product never uses them.
# Made by scripts/pin_judges.py from the versions of an environment; edit that, not this.
"""


def pip(*arguments):
    return subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, text=True, capture_output=True).stdout


def main():
    with tempfile.TemporaryDirectory() as folder:
        versions = pathlib.Path(folder, "versions.txt")
        versions.write_text(pip("freeze"))
        # A dry run asks the index for every wheel's hash.
        report = json.loads(pip("install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed",
                                "--only-binary", ":all:", "--report", "-", "-r", str(versions)))
    lines = sorted(
        (f"{item['metadata']['name']}=={item['metadata']['version']} "
         f"--hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}" for item in report["install"]),
        key=lambda line: line.lower().replace("_", "-"))
    pathlib.Path(__file__).with_name("judges-requirements.txt").write_text(HEADER + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
