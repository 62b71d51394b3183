"""Fails if a hot loop of the kernel keeps an accumulator on the stack.

The loops of block_loops.hpp need every vector register; a change that looks harmless may make the
compiler store one in each round, which costs a fifth of the speed and no test. This looks at the
loops of the built library, with objdump. Constants read from the stack are no spills.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

from syncpoint.metrics import _kernel

HOT = (
    "sum_block",
    "sum_relative_block",
    "survey_block",
    "sum_equal_block",
    "look_again_block",
    "ulp_floats",
    "ulp_halves",
    "exponents_of",
)
FUNCTION = re.compile(r"^[0-9a-f]+ <.*syncpoint::avx2::(\w+)[<(].*>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
SPILL = re.compile(r"^%[xy]mm\d+,-?(0x[0-9a-f]+)?\(%r[sb]p\)")


def functions(listing: str) -> dict[str, list[list[tuple[int, str, str]]]]:
    """Instructions of every copy of each hot function: address, name, operands."""
    copies: dict[str, list[list[tuple[int, str, str]]]] = {name: [] for name in HOT}
    current: list[tuple[int, str, str]] | None = None
    for line in listing.splitlines():
        if head := FUNCTION.match(line):
            current = [] if head[1] in copies else None
            if current is not None:
                copies[head[1]].append(current)
        elif not line.strip():
            current = None
        elif current is not None and (parts := INSTRUCTION.match(line)):
            current.append((int(parts[1], 16), parts[2], parts[3]))
    return copies


def spills(code: list[tuple[int, str, str]]) -> list[str]:
    """Stores of vector registers to the stack between a jump back and its goal."""
    loops = []
    for address, name, operands in code:
        goal = re.match(r"([0-9a-f]+) <", operands)
        if name.startswith("j") and goal and int(goal[1], 16) < address:
            loops.append((int(goal[1], 16), address))
    return [
        f"{address:x}: {name} {operands}"
        for address, name, operands in code
        if name.startswith("vmov")
        and SPILL.match(operands)
        and any(first <= address <= last for first, last in loops)
    ]


def main() -> int:
    """Print what is wrong; the exit code says whether anything is."""
    if shutil.which("objdump") is None or _kernel.isa() != "avx2":
        print("spills: not checked (needs objdump and a processor with AVX2)")
        return 0
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-C", _kernel.__file__],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wrong = []
    for name, copies in functions(listing).items():
        if not copies:
            wrong.append(f"{name}: not in {_kernel.__file__}; was it renamed or inlined?")
        wrong.extend(f"{name}: {spill}" for code in copies for spill in spills(code))
    print("\n".join(wrong) or f"spills: none in {len(HOT)} loops")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
