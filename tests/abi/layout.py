#!/usr/bin/env python3
"""Freezes the layout of the contract: writes C assertions of every member's offset and every enumerator's value.

layout.py write INCLUDE_DIR... > layout_v0.h      what the headers say now
layout.py check layout_v0.h INCLUDE_DIR...        fails when they say anything else, or more
A member that was appended is added by writing the file anew; any other difference breaks plugins that exist.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

HEADERS = ["plugin.h", "model.h", "stage.h", "shard.h", "checkpoint_format.h", "converter.h", "collectives.h"]


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def structs(text):
    """(name, members) of every struct that is defined."""
    for match in re.finditer(r"typedef struct (fastllm_\w+) \{(.*?)\n\}", text, flags=re.S):
        members = []
        for declaration in match[2].split(";"):
            if pointer := re.search(r"\(\*(\w+)\)", declaration):  # a function
                members.append(pointer[1])
            elif declaration.strip():
                members += re.findall(r"(\w+)\s*(?:,|$)", declaration.strip())
        yield match[1], members


def enumerators(text):
    for match in re.finditer(r"enum \{(.*?)\}", text, flags=re.S):
        yield from re.findall(r"(FASTLLM_\w+)", match[1])


def identifiers(text):
    """Macros that name things on both sides: "fastllm.model/0"."""
    return re.findall(r"#define (FASTLLM_\w+) (\"[^\"]+\")", text)


def layout(include):
    folder = next(pathlib.Path(i) / "fastllm" for i in include if (pathlib.Path(i) / "fastllm").is_dir())
    text = "".join(without_comments((folder / name).read_text()) for name in HEADERS)
    program = ["#include <stdio.h>"] + [f"#include <fastllm/{name}>" for name in HEADERS] + ["int main(void) {"]
    for name, members in structs(text):
        program.append(f'printf("SIZE({name}, %zu)\\n", sizeof({name}));')
        program += [f'printf("MEMBER({name}, {m}, %zu, %zu)\\n", offsetof({name}, {m}), sizeof((({name} *)0)->{m}));' for m in members]
    program += [f'printf("VALUE({name}, %d)\\n", (int){name});' for name in enumerators(text)]
    program.append("return 0; }")
    with tempfile.TemporaryDirectory() as temporary:
        source, binary = f"{temporary}/layout.c", f"{temporary}/layout"
        pathlib.Path(source).write_text("\n".join(program))
        subprocess.run(["cc", "-std=c11", "-o", binary, source] + [f"-I{i}" for i in include], check=True)
        numbers = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return numbers + "".join(f"TEXT({name}, {value})\n" for name, value in identifiers(text))


def main():
    action, arguments = sys.argv[1], sys.argv[2:]
    if action == "write":
        print("/* Made by layout.py; used by layout.h. Once released, lines are only ever added. */")
        print(layout(arguments), end="")
        return
    frozen = pathlib.Path(arguments[0]).read_text().splitlines()[1:]
    now = layout(arguments[1:]).splitlines()
    gone, new = [l for l in frozen if l not in now], [l for l in now if l not in frozen]
    for line in gone:
        print(f"changed or gone: {line}")
    for line in new:
        print(f"not in the frozen layout: {line}")
    if gone or new or not frozen:
        sys.exit("expected the headers to have the frozen layout, found the differences above; an appended member or enumerator "
                 f"is recorded with: layout.py write INCLUDE_DIR... > {arguments[0]}")


if __name__ == "__main__":
    main()
