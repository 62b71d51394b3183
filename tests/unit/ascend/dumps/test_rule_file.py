"""Rule files: which op was made from which."""

from __future__ import annotations

import json

import pytest

from helpers.paths import ASCEND_DATA
from syncpoint.ascend.dumps.rule_file import OpRule, OutputRule, RuleFile
from syncpoint.errors import FormatError, InputError


def rules(tmp_path, *ops: object, name: str = "g") -> RuleFile:
    (tmp_path / "r.json").write_text(json.dumps({"graph": [{"name": name, "op": list(ops)}]}))
    return RuleFile.load(tmp_path / "r.json")


def test_the_rules_of_the_mixed_set_are_read():
    found = RuleFile.load(ASCEND_DATA / "offline_mixed/fusion.json")
    ops = {op.name: op for op in found.ops}
    assert found.graphs == ("model",)
    assert [op.id for op in found.ops] == list(range(48))
    assert ops["data"].original_names == ()
    assert ops["trans_TransData_0"].original_names == ("",)
    fused = ops["layer1/conv1layer1/relu1"]
    assert fused.original_names == ("layer1/conv1", "layer1/relu1")
    assert fused.inputs == (("trans_TransData_0", 0),)
    assert fused.output_desc == (("layer1/relu1", 0, "NCHW", (1, 24, 8, 8), "DT_FLOAT16"),)
    assert (ops["l1a"].l1, ops["sm_part0"].multi, ops["l1a"].multi) == ("7", True, False)


def test_all_rule_files_of_the_sets_are_read():
    for path in ASCEND_DATA.glob("offline_*/**/*.json"):
        assert RuleFile.load(path).ops


def test_defaults_and_fallbacks(tmp_path):
    attr = [{"key": "origin_format", "value": {"s": "NHWC"}}]
    found = rules(
        tmp_path,
        {"name": "a", "type": "T"},
        {
            "name": "b",
            "type": "T",
            "input": ["a:0", "x/y:z:12", "a:-1", ""],
            "output_desc": [{}, {"attr": attr}],
        },
    )
    assert found.ops[0] == OpRule(name="a", type="T", graph="g")
    assert found.ops[1].inputs == (("a", 0), ("x/y:z", 12))
    assert found.ops[1].output_desc == (
        OutputRule(origin_index=0),
        OutputRule(origin_index=1, origin_format="NHWC"),
    )


@pytest.mark.parametrize(
    ("op", "match"),
    [
        ({"type": "T"}, "op 0 of graph 0 of r.json has no key 'name'"),
        ({"name": "a"}, "op 'a' of r.json has no key 'type'"),
        ({"name": 3, "type": "T"}, "'name' in op 0 .* must be text"),
        ({"name": "a", "type": "T", "attr": [{"value": {}}]}, "attribute 0 .* has no key 'key'"),
        ({"name": "a", "type": "T", "attr": {}}, "'attr' in op 'a' .* must be a list"),
        ({"name": "a", "type": "T", "input": ["b"]}, "producer:number"),
        ({"name": "a", "type": "T", "input": ["b:٣"]}, "producer:number"),
        ({"name": "a", "type": "T", "input": [1]}, "an input of op 'a' .* must be text"),
        ({"name": "a", "type": "T", "id": "x"}, "'id' .* must be a number"),
        ({"name": "a", "type": "T", "id": True}, "'id' .* must be a number"),
        ({"name": "a", "type": "T", "output_desc": [3]}, "output 0 of op 'a' .* must be an object"),
        ("text", "op 0 .* must be an object"),
    ],
)
def test_what_is_missing_or_of_another_type_is_named(tmp_path, op, match):
    with pytest.raises(FormatError, match=match) as caught:
        rules(tmp_path, op)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"graph": {}}', '{"graph": [1]}', "[" * 100_000, '{"a":1,"a":2}']
)
def test_other_json_is_a_format_error(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(FormatError) as caught:
        RuleFile.load(tmp_path / "r.json")
    assert "\n" not in str(caught.value)


def test_no_rule_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot read the rule file"):
        RuleFile.load(tmp_path / "r.json")
