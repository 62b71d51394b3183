"""The example command lines at the end of each command's help."""

EXAMPLES = {
    "capture": (
        "syncpoint capture model.py:reference --inputs model.py:inputs -o reference.run",
        "syncpoint capture model.onnx --inputs random:0 --fusion unfused -o unfused.run",
    ),
    "compare": (
        "syncpoint compare model.onnx model.py:reference --inputs model.py:inputs -o shipped.cmp",
        "syncpoint compare target.npz reference.npz --csv all.csv",
        "syncpoint compare -m offline_data -tp device_dump -gp golden -fr fusion.json",
    ),
    "diagnose": (
        "syncpoint diagnose shipped.cmp",
        "syncpoint diagnose shipped.cmp --target-model model.onnx --seconds 120",
    ),
    "bisect": ("syncpoint bisect model.onnx model.py:reference --inputs model.py:inputs",),
    "analyze": ("syncpoint analyze model.py:reference --inputs model.py:inputs -o analysis",),
    "report": (
        "syncpoint report shipped.cmp --html report.html",
        "syncpoint report shipped.cmp --preset bf16 --sort operation --rows 0",
    ),
    "view": ("syncpoint view shipped.cmp",),
    "session": ("syncpoint session model.onnx model.py:reference --folder models",),
    "inspect": ("syncpoint inspect target.run", "syncpoint inspect target.run conv1d_2"),
    "verify": ("syncpoint verify shipped.cmp",),
    "convert": ("syncpoint convert target.run target.safetensors --to safetensors",),
    "reduce": ("syncpoint reduce msprobe_dump --to min-max --watch --until-idle 60",),
}
"""Command lines by the name of their command."""
