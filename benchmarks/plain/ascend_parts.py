"""What our comparison of an Ascend dump does with each tensor, and nothing around it: layout,
columns and measurement. Writes the same CSV as `ascend_numpy.py`, and prints the CPU nanoseconds
per element of each part."""

import csv
import json
import sys
from pathlib import Path
from time import process_time

from ascend_numpy import METRICS, logical, pairs

from syncpoint.ascend.mode.offline_data.metric_columns import columns
from syncpoint.metrics import Pair, dense, measure, operand


def main():
    folder, out = map(Path, sys.argv[1:])
    spent, elements = dict.fromkeys(("layout", "columns", "measure"), 0.0), 0
    with out.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["TensorIndex", *METRICS])
        for name, layout, array, golden in pairs(folder):
            times = [process_time()]
            target = logical(layout, array, golden.shape, dense)
            times.append(process_time())
            found = columns(target, golden, "", "", golden.shape)
            times.append(process_time())
            measure([Pair(operand(target), operand(golden))], threads=1)
            times.append(process_time())
            for part, start, end in zip(spent, times, times[1:], strict=False):
                spent[part] += end - start
            elements += golden.size
            rows.writerow([name, *found.cells.values()])
    print(json.dumps({part: seconds / elements * 1e9 for part, seconds in spent.items()}))


if __name__ == "__main__":
    main()
