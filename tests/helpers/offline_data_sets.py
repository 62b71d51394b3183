"""The pairs of device dumps for which the tool of these dumps wrote reports."""

SETS = {
    "offline_mixed": {"fusion_rule": "fusion.json"},
    "offline_npu_vs_npu": {},
    "offline_fusion_off": {"fusion_rule": "open.json", "close_fusion_rule": "close.json"},
    "offline_quantized": {"fusion_rule": "fusion.json", "quant_fusion_rule": "quant.json"},
    "offline_batch": {"fusion_rule": "json"},
}
"""The flags with which each pair is compared."""
FOLDERS = {
    "offline_mixed": ("npu", "golden"),
    "offline_npu_vs_npu": ("a", "b"),
    "offline_fusion_off": ("open", "close"),
    "offline_quantized": ("npu", "golden"),
    "offline_batch": ("20240101010101", "golden"),
}
"""Target and golden folder of each pair."""
