"""Lists the device code inside libraries, and compares it with what is expected:

    device_code.py LIBRARY... --expect sm_80 sm_90

nvcc leaves it in a section of its own, as "fat binaries": containers of which each has a header and one
entry for each architecture (cuobjdump --list-elf shows the same, where it is installed).
"""
import argparse
import pathlib
import struct
import sys

MAGIC = 0xBA55ED50
KIND_ELF = 2


def section(data: bytes, name: bytes) -> bytes:
    """The bytes of a section of a 64-bit ELF file; none of that name: empty."""
    if data[:5] != b"\x7fELF\x02":
        raise SystemExit("expected a 64-bit ELF file, found another one")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + k * size) for k in range(count)]
    names_at = headers[names][4]
    for name_at, _, _, _, begin, length in headers:
        end = data.index(b"\0", names_at + name_at)
        if data[names_at + name_at:end] == name:
            return data[begin:begin + length]
    return b""


def machine_code(data: bytes) -> list[set[str]]:
    """For each container, the architectures it has machine code for."""
    fat, result, at = section(data, b".nv_fatbin"), [], 0
    while at + 16 <= len(fat):
        magic, _, header, length = struct.unpack_from("<IHHQ", fat, at)
        if magic != MAGIC:  # padding
            at += 8
            continue
        end, entry, found = at + header + length, at + header, set()
        while entry < end:
            kind, _, entry_header, payload = struct.unpack_from("<HHIQ", fat, entry)
            (architecture,) = struct.unpack_from("<I", fat, entry + 28)
            if kind == KIND_ELF:
                found.add(f"sm_{architecture}")
            entry += entry_header + payload
        result.append(found)
        at = end
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="+", type=pathlib.Path)
    parser.add_argument("--expect", nargs="+", required=True)
    arguments = parser.parse_args()
    for library in arguments.libraries:
        containers = machine_code(library.read_bytes())
        print(f"{library.name}: {len(containers)} containers:", *sorted(set.union(set(), *containers)))
        if not containers:
            sys.exit(f"expected device code in {library}, found none")
        for found in containers:
            if missing := set(arguments.expect) - found:
                sys.exit(f"expected machine code for {' '.join(sorted(missing))} in all of {library}, "
                         f"found a part with {' '.join(sorted(found)) or 'none'}")


main()
