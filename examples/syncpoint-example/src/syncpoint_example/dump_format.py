"""The dump format `json-lines`: a .jsonl file with one tensor a line."""

import json
from pathlib import Path

import numpy as np

from syncpoint.errors import FormatError
from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Op, OpKey, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run, in_memory


class JsonLines:
    """Lines such as {"op": "fc", "type": "MatMul", "dtype": "float32", "values": [[1, 2]]}."""

    API = 1
    name = "json-lines"

    def sniff(self, path: Path) -> bool:
        """Whether the file looks like one of these. It is asked of every path: be quick."""
        if path.suffix != ".jsonl" or not path.is_file():
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(7) == '{"op": '

    def open(self, path: Path) -> Run:
        """The run that the file holds; whatever is wrong with it is a FormatError."""
        ops, tensors = [], []
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                value = np.array(entry["values"], entry["dtype"])
                op = Op(OpKey(entry["op"]), entry.get("type", ""))
                key = TensorKey(op.key, Role(entry.get("role", "output")))
                tensors.append((Tensor(key, from_numpy(value.dtype).name, value.shape), value))
                ops += [op] if key.role is Role.OUTPUT else []
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path} has a line that is not a tensor: {error!r}") from error
        return in_memory(RunInfo(model=path.name), ops, tensors)

    def save(self, run: Run, path: Path) -> None:
        """Optional: makes `syncpoint convert --to json-lines` work."""
        with path.open("w", encoding="utf-8") as file:
            for tensor in run.tensors:
                op, value = run.op(tensor.key.op), np.asarray(run.values(tensor))
                entry = {"op": tensor.key.op.op, "type": op.type if op else ""}
                entry |= {"role": tensor.key.role.value, "dtype": value.dtype.name}
                file.write(json.dumps(entry | {"values": value.tolist()}) + "\n")
