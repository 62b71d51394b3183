"""Builds the kernel for 64-bit ARM, runs it under qemu-user, and compares it with this machine.

The plain form of the kernel has no instruction of its own and no contracted sums, so both must
print the same bits; only what goes through the C library's logarithm may differ in its last ones.
Run by `make test-all`; needs a cross compiler and the emulator (Debian: g++-aarch64-linux-gnu and
qemu-user).
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "src" / "syncpoint" / "metrics" / "native"
FLAGS = [
    "-std=c++20", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-pthread", "-static", f"-I{NATIVE}",
]  # fmt: skip
SOURCES = ["elements", "isa_baseline", "job", "lanes", "measure", "metrics", "operand", "reader",
           "source", "sums", "survey"]  # fmt: skip
DECIBELS = re.compile(r"(psnr|sqnr)=([0-9a-f]{16})")
TOOLS = {
    "g++": "g++",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}


def output(compiler: str, runner: list[str], folder: Path) -> list[str]:
    """What the test program prints when built with `compiler` and started by `runner`."""
    program = folder / compiler
    sources = [NATIVE / f"{name}.cpp" for name in SOURCES]
    subprocess.run(
        [compiler, *FLAGS, ROOT / "tests" / "native" / "portable.cpp", *sources, "-o", program],
        check=True,
    )
    process = subprocess.run(
        [*runner, program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "SYNCPOINT_ISA": "baseline"},
    )
    return process.stdout.splitlines()


def has_equal_bits(native: str, emulated: str) -> bool:
    """Equal bits, but for the last ones of decibels."""
    if DECIBELS.sub("", native) != DECIBELS.sub("", emulated):
        return False
    for (_, a), (_, b) in zip(DECIBELS.findall(native), DECIBELS.findall(emulated), strict=True):
        x, y = (struct.unpack(">d", bytes.fromhex(text))[0] for text in (a, b))
        if x != y and not abs(x - y) <= 1e-14 * max(abs(x), abs(y)):
            return False
    return True


def main() -> int:
    """0 if both agree."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        sys.stderr.write(f"check_arm: not installed: {', '.join(missing)}; apt-get install them\n")
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        native = output("g++", [], folder)
        emulated = output("aarch64-linux-gnu-g++", ["qemu-aarch64"], folder)
    wrong = [a for a, b in zip(native, emulated, strict=True) if not has_equal_bits(a, b)]
    for line in wrong[:5]:
        sys.stderr.write(f"check_arm: differs: {line[:60]}\n")
    sys.stdout.write(f"arm: {len(native) - len(wrong)} of {len(native)} cases agree\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
