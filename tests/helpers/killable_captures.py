"""A process that captures a real model, so that tests can kill it.

`python killable_captures.py FOLDER` exports a small transformer, captures it once into
`FOLDER/whole.run` and says how long that took. Then, for each path on stdin, it forks a
child that captures the same into that path, prints the child's process id, and reaps it after one
more line.

Forking spares every kill the seconds that importing torch takes. It is safe here because torch
is held to one thread and the tables of the first run are written in a child of its own.
"""

import os
import sys
from pathlib import Path
from time import perf_counter

import torch

from models.transformer import make_transformer, transformer_inputs
from syncpoint.run.model import Part, RunInfo
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.shards import ShardWriter
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.protocol import Inputs
from syncpoint.runtimes.registry import find_runtime

ShardWriter.__init__.__kwdefaults__["shard_bytes"] = 2 << 20  # so that several are closed

SAMPLES = 5


def open_session():
    model = make_transformer()
    runtime = find_runtime(model, None)
    session = runtime.open(model, parse_options(runtime, {"threads": 1}))
    session.prepare(Inputs(transformer_inputs(batch=4)))
    return session


def capture(session, path):
    with RunWriter(path, RunInfo(model="transformer"), overwrite=True) as writer:
        recorder = Recorder(writer)
        for sample in range(SAMPLES):
            inputs = Inputs(transformer_inputs(batch=4, seed=sample))
            session.run(inputs, recorder.for_part(Part(sample=sample)))


def forked(session, path):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            capture(session, path)
            code = 0
        finally:
            os._exit(code)
    return child


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    session = open_session()
    start = perf_counter()
    _, status = os.waitpid(forked(session, folder / "whole.run"), 0)
    if status:
        raise SystemExit("the capture that nobody kills failed")
    print(perf_counter() - start, flush=True)
    while path := sys.stdin.readline().strip():
        child = forked(session, path)
        print(child, flush=True)
        sys.stdin.readline()
        os.waitpid(child, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main()
