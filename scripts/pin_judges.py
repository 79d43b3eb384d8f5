#!/usr/bin/env python3
"""Writes NAME-requirements.txt: the packages of one environment with the hash of the wheel each comes from.

    python3 -m venv /tmp/pins && /tmp/pins/bin/pip install --upgrade pip PACKAGE...
    /tmp/pins/bin/python scripts/pin_judges.py NAME

NAME        PACKAGE...
judges      torch==2.11.0 transformers sentencepiece jsonschema pyyaml
tokenizers  tokenizers, with --no-deps
bench       datasets tokenizers
litgpt      litgpt torch==2.11.0
"""
import json
import pathlib
import subprocess
import sys
import tempfile

HEADERS = {
    "judges": """\
# Python packages of the tests' judges (PyTorch and Transformers as references, schema and file checks), pinned by version and content.
# Installed by scripts/setup.sh --judges into an environment of their own; the product never uses them.
""",
    "tokenizers": """\
# Hugging Face's package that reads tokenizer.json, pinned by version and content; what it needs besides is for downloading alone.
# Installed by scripts/setup.sh --tokenizers into an environment of its own; the product runs it in processes of their own.
""",
    "bench": """\
# Python packages that bench/prepare_speed.py compares with, pinned by version and content.
# Installed by scripts/setup.sh --bench into an environment of their own; the product never uses them.
""",
    "litgpt": """\
# LitGPT, which bench/step.py compares with, pinned by version and content; it needs an older huggingface_hub than Transformers does.
# Installed by scripts/setup.sh --bench into an environment of its own; the product never uses it.
""",
}
MADE_BY = "# Made by scripts/pin_judges.py from the versions of an environment; edit that, not this.\n"


def pip(*arguments):
    return subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, text=True, capture_output=True).stdout


def main():
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in HEADERS:
        sys.exit(f"usage: pin_judges.py {'|'.join(HEADERS)}")
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
    pathlib.Path(__file__).with_name(f"{name}-requirements.txt").write_text(
        HEADERS[name] + MADE_BY + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
