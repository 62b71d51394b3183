"""Every command and every example in README and docs is run."""

import re
import shlex
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.commands import syncpoint
from helpers.msprobe_dumps import REAL
from helpers.paths import ASCEND_DATA, ROOT
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.metrics.limits import load_limits
from syncpoint.runtimes.import_path import load_object

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def place(files, tmp_path):
    """What the commands of the documents take for granted, for one test to work in."""
    return Path(shutil.copytree(files, tmp_path / "place", symlinks=True))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Models, dumps, inputs and settings that the documents name, made once."""
    folder = tmp_path_factory.mktemp("documents")
    model = ROOT / "src" / "syncpoint" / "cli" / "demo_model.py.txt"
    (folder / "model.py").write_text(model.read_text())
    _export(folder)
    _copy_dumps(folder)
    (folder / "ours.yaml").write_text("preset: f16\npsnr: [45, 35]\n")
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    for side in ("target", "reference"):
        np.savez(folder / f"{side}.npz", a=x, b=2 * x)
    np.save(folder / "cat.npy", np.linspace(0, 255, 192).reshape(8, 8, 3))
    for name in ("ours", "theirs"):
        (folder / f"{name}.py").write_text("def prepare(raw):\n    return raw / 255\n")
    return folder


def _copy_dumps(folder):
    """The dumps of Ascend devices and of msProbe that the documents name."""
    for dump, side in (("npu_dump", "target"), ("gpu_dump", "reference")):
        shutil.copytree(REAL / f"tensor_{side}", folder / dump)
    for name, source in (
        ("device_dump", "offline_mixed/npu"),
        ("golden", "offline_mixed/golden"),
        ("msprobe_ge_dump", "torchair/msprobe_ge_dump"),
        ("msprobe_fx_dump", "torchair/msprobe_fx_dump"),
        ("fusion_off/msprobe_ge_dump", "torchair/msprobe_ge_off"),
    ):
        shutil.copytree(ASCEND_DATA / source, folder / name)
    shutil.copy(ASCEND_DATA / "offline_mixed" / "fusion.json", folder)


def _export(folder):
    """The ONNX file and the Core AI assets of the documents: the model they all speak of, and a
    decoder with inputs of three steps."""
    import torch

    from models import coreai_files, decoder
    from models.onnx_files import quiet

    with chdir(folder):
        model, inputs = (load_object(f"model.py:{name}")() for name in ("reference", "inputs"))
    given = tuple(torch.as_tensor(v) for v in inputs)
    with quiet():
        torch.onnx.export(model, given, dynamo=True, verbose=False).save(folder / "model.onnx")
    whole = {"main": coreai_files.decomposed(model, given)}
    coreai_files.save(folder / "model.aimodel", whole)
    loop = {"main": coreai_files.decomposed(decoder.make_decoder(), decoder.decoder_steps()[0])}
    coreai_files.save(folder / "decoder.aimodel", loop)
    shutil.copy(decoder.__file__, folder / "decoder.py")
    (folder / "tokens").mkdir()
    for number, (token, position) in enumerate(decoder.decoder_steps()):
        file = folder / "tokens" / f"{number}.npz"
        np.savez(file, token=token.numpy(), position=position.numpy())


def commands(page):
    text = page.read_text()
    inline = re.findall(r"`(syncpoint (?:report|inspect|compare|doctor)[^`\n]* ?[^`\n]*)`", text)
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines()]
    block = [line for line in lines if re.match(r"syncpoint [a-z]", line)]
    return [*block, *(c for c in inline if "RUN" not in c and "TIME" not in c)]


def test_every_command_runs(place):
    ran = set()
    for page in PAGES:
        for command in commands(page):
            if command in ran:
                continue
            words = shlex.split(command)[1:]
            if words[0] in ("session", "view"):
                continue  # serve until they are stopped: tests/browser
            if words[:2] == ["compare", "target.safetensors"]:
                for side in ("target", "reference"):
                    syncpoint(
                        "convert", f"{side}.npz", f"{side}.safetensors", "--to", "safetensors",
                        cwd=place, code=0,
                    )  # fmt: skip
            if words[0] == "capture":
                shutil.rmtree(place / words[words.index("-o") + 1], ignore_errors=True)
            if words[0] == "convert":
                (place / words[2]).unlink(missing_ok=True)
            found = syncpoint(*words, cwd=place)
            assert found.returncode in (0, 1), (command, found.stderr)
            ran.add(command)
    assert len(ran) >= 10


def test_the_output_in_the_readme_is_the_real_one(place):
    shown = re.search(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    command, *lines = shown.splitlines()
    found = syncpoint(*shlex.split(command)[2:], cwd=place, code=1).stdout
    real = [" ".join(line.split()) for line in found.replace(f"{place}/", "").splitlines()]
    real = [line.replace("+cpu", "") for line in real]
    for line in lines:
        assert line == "..." or " ".join(line.split()) in real, line


def test_the_python_of_the_readme_runs(place):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with chdir(place):
        exec(compile(code, "README.md", "exec"), {"model": model, "inputs": (torch.ones(2, 4),)})
        assert (place / "all.csv").is_file()


@pytest.mark.parametrize("page", ["README.md", "docs/recording.md"])
def test_the_examples_of_recording_run(tmp_path, page):
    import torch

    names = {"model": torch.nn.Linear(4, 4), "inputs": (torch.ones(2, 4),), "sp": sp}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    blocks = [code for code in blocks if page != "README.md" or "record" in code]
    assert blocks
    with chdir(tmp_path):
        for code in blocks:
            exec(compile(code, page, "exec"), names)
    runs = {path.name for path in tmp_path.iterdir()}
    assert "engine.run" in runs
    if page != "README.md":
        assert {"sharded.rank0.run", "sharded.rank1.run"} <= runs
        assert sp.open_run(tmp_path / "engine.run").tensors[0].layout == "b s h(tp) d"


def test_the_example_files_of_the_documents_are_valid(tmp_path):
    blocks = {page.name: re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S) for page in PAGES}
    (tmp_path / "map.yaml").write_text(blocks["matching.md"][0])
    assert len(MapFile.load(tmp_path / "map.yaml").pins) == 2
    (tmp_path / "limits.yaml").write_text(blocks["limits.md"][0])
    assert load_limits(tmp_path / "limits.yaml").psnr == (45, 35)


def test_the_limits_page_has_the_presets_of_the_code():
    from syncpoint.metrics.limits import PRESETS, metric_bound

    text = (ROOT / "docs" / "limits.md").read_text()
    for name, limits in PRESETS.items():
        if not limits.exact:
            bulk = [metric_bound("bulk_sqnr", {"peak": 1.0}, limits, level) for level in (0, 1)]
            pairs = (limits.psnr, limits.sqnr, bulk, limits.introduced)
            cells = [f"{a:g} / {b:g}" for a, b in pairs]
            assert f"| {name} | {' | '.join(cells)} |" in text


def test_links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), (page, link)
