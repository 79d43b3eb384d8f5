#!/usr/bin/env python3
"""Control of the layout check: each of these changes to a copy of the headers must turn it red; no change must leave it green.

layout_control.py SDK_INCLUDE DLPACK_INCLUDE
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CHANGES = {
    "nothing": ("plugin.h", "", ""),
    "two members swapped": ("model.h", "int64_t step, micro_batch;", "int64_t micro_batch, step;"),
    "a function inserted": (
        "plugin.h",
        "  int32_t (*cancelled)(void);",
        "  int32_t (*paused)(void); int32_t (*cancelled)(void);",
    ),
    "a member widened": ("model.h", "int32_t shard_dim;", "int64_t shard_dim;"),
    "an enumerator inserted": ("plugin.h", "FASTLLM_I64,", "FASTLLM_I32, FASTLLM_I64,"),
    "a flag moved": ("model.h", "FASTLLM_EVAL = 2", "FASTLLM_EVAL = 8"),
    "an identifier renamed": ("model.h", '"fastllm.model/0"', '"fastllm.models/0"'),
}


def compiles(include, dlpack):
    command = ["cc", "-std=c11", "-fsyntax-only", f"-I{include}", f"-I{HERE}", f"-I{dlpack}", "-x", "c", str(HERE / "layout.h")]
    return subprocess.run(command, capture_output=True).returncode == 0


def main():
    sdk, dlpack = sys.argv[1:]
    for name, (header, old, new) in CHANGES.items():
        with tempfile.TemporaryDirectory() as temporary:
            shutil.copytree(pathlib.Path(sdk) / "fastllm", pathlib.Path(temporary) / "fastllm")
            path = pathlib.Path(temporary) / "fastllm" / header
            text = path.read_text()
            if old not in text:
                sys.exit(f"{name}: expected {old!r} in {header}, found none; adapt this control")
            path.write_text(text.replace(old, new, 1) if old else text)
            green = compiles(temporary, dlpack)
            print(f"{name}: {'green' if green else 'red'}")
            if green != (name == "nothing"):
                sys.exit(f"{name}: expected the layout check to be {'red' if green else 'green'}")


if __name__ == "__main__":
    main()
