"""How long `syncpoint diagnose` takes on a comparison of some 550 ops: from the recordings alone,
and with both models at hand. One fault that has a name, and one that has none and is searched
longest.

Seconds of processor time of the whole command, beside what elapsed; the limits are 2 and 60.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads, fault):
        super().__init__()
        self.heads, self.fault = heads, fault
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.before(x)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (f(y).view(shape).transpose(1, 2) for f in (self.query, self.key, self.value))
        seen = (q @ k.transpose(-2, -1) / shape[-1] ** 0.5).softmax(-1) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        y = self.up(self.between(x))
        y = F.gelu(y, approximate="tanh" if self.fault == "named" else "none")
        if self.fault == "unnamed":
            y = y + 0.05 * torch.sin(9 * y) * torch.cos(5 * y)
        return x + self.down(y)


class Net(nn.Module):
    def __init__(self, fault):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(*(Block(64, 4, fault if i == 10 else "") for i in range(24)))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.blocks(x).mean(1))


def good():
    return Net("").eval()


def named():
    return Net("named").eval()


def unnamed():
    return Net("unnamed").eval()
"""


def measured(folder, *words):
    """Processor seconds and elapsed seconds of a command; whatever it finds is no error."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run = "import sys; from syncpoint.cli import main; main()"
    command = [sys.executable, "-c", run, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(used, 2), round(time.monotonic() - begun, 2), done.stdout


def main():
    """Prints one line a case."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net.py").write_text(MODEL, encoding="utf-8")
        given = ("--inputs", "random:1", "--shape", "x=2,32,64")
        measured(folder, "capture", "net.py:good", *given, "-o", "good.run")
        for fault in ("named", "unnamed"):
            measured(folder, "capture", f"net.py:{fault}", *given, "-o", f"{fault}.run")
            comparison = f"{fault}.cmp"
            measured(folder, "compare", f"{fault}.run", "good.run", "-o", comparison)
            models = ("--target-model", f"net.py:{fault}", "--reference-model", "net.py:good")
            for what, words in (("recordings alone", ()), ("models at hand", models)):
                for _ in range(2):  # The first may still have to compile what it imports.
                    used, elapsed, said = measured(
                        folder, "diagnose", comparison, "--no-save", *words
                    )
                first = next((line for line in said.splitlines() if line.startswith("1 ")), "")
                case = f"diagnose, fault {fault}, {what}"
                print(json.dumps({"name": case, "cpu s": used, "s": elapsed, "said": first}))


if __name__ == "__main__":
    main()
