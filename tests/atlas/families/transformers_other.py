"""Models of `transformers` for images, audio, video, several modalities, detection and time series,
and models of text that have a state instead of attention.

Tables as in `transformers_text`; a group of rows shares the inputs and the usual sizes.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from atlas.architecture import architecture
from atlas.families.transformers_text import (
    BATCH,
    LOGITS,
    SIZES,
    Caller,
    Row,
    TextCaller,
    token_ids,
)

IMAGE = 32
PATCH = 8


class PixelCaller(Caller):
    def forward(self, pixel_values):
        return self.call(pixel_values=pixel_values)


class WaveformCaller(Caller):
    def forward(self, input_values):
        return self.call(input_values=input_values)


class FeatureCaller(Caller):
    def forward(self, input_features):
        return self.call(input_features=input_features)


class SpectrogramCaller(Caller):
    def forward(self, spectrogram):
        return self.model(spectrogram)


class FeatureToTextCaller(Caller):
    def forward(self, input_features, decoder_input_ids):
        return self.call(input_features=input_features, decoder_input_ids=decoder_input_ids)


class WaveformToTextCaller(Caller):
    def forward(self, input_values, decoder_input_ids):
        return self.call(input_values=input_values, decoder_input_ids=decoder_input_ids)


class PixelToTextCaller(Caller):
    def forward(self, pixel_values, decoder_input_ids):
        return self.call(pixel_values=pixel_values, decoder_input_ids=decoder_input_ids)


class TextAndPixelCaller(Caller):
    def forward(self, input_ids, attention_mask, pixel_values):
        return self.call(
            input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values
        )


class TextAndBoxCaller(Caller):
    def forward(self, input_ids, attention_mask, bbox):
        return self.call(input_ids=input_ids, attention_mask=attention_mask, bbox=bbox)


class PixelAndPointCaller(Caller):
    def forward(self, pixel_values, input_points):
        return self.call(pixel_values=pixel_values, input_points=input_points)


class SeriesCaller(Caller):
    def forward(self, past_values):
        return self.call(past_values=past_values)


class ForecastCaller(Caller):
    def forward(self, past_values, past_time_features, future_values, future_time_features):
        return self.call(
            past_values=past_values,
            past_time_features=past_time_features,
            past_observed_mask=torch.ones_like(past_values),
            future_values=future_values,
            future_time_features=future_time_features,
        )


def text() -> tuple[torch.Tensor, ...]:
    ids = token_ids()
    return ids, torch.ones_like(ids)


def image(size: int = IMAGE) -> torch.Tensor:
    return torch.randn(BATCH, 3, size, size)


def boxes() -> torch.Tensor:
    """Left, top, right and bottom of every token."""
    corners = torch.randint(0, 30, (BATCH, 10, 2))
    return torch.cat([corners, corners + torch.randint(1, 30, (BATCH, 10, 2))], dim=-1)


def forecast() -> tuple[torch.Tensor, ...]:
    past, future = SERIES + 3, HORIZON
    return (
        torch.randn(BATCH, past),
        torch.randn(BATCH, past, 2),
        torch.randn(BATCH, future),
        torch.randn(BATCH, future, 2),
    )


VISION_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": IMAGE,
    "patch_size": PATCH,
}
TEXT_TOWER = SIZES | {"initializer_range": 0.15, "max_position_embeddings": 16}
VISION_TOWER = VISION_SIZES | {"initializer_range": 0.15}
TOWERS = {"text_config": TEXT_TOWER, "vision_config": VISION_TOWER, "projection_dim": 24}
BACKBONE = {
    "backbone_config": {
        "model_type": "resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 12, 16, 24],
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
        "out_features": ["stage4"],
    }
}
DETR_SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48,
              "decoder_ffn_dim": 48, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
              "num_queries": 6}  # fmt: skip
BOXES = ("logits", "pred_boxes")

IMAGE_TRANSFORMERS = (
    Row("vit", "ViTForImageClassification", attention="eager", outputs=LOGITS),
    Row("deit", "DeiTForImageClassificationWithTeacher", outputs=LOGITS),
    Row("beit", "BeitForImageClassification", {"use_relative_position_bias": True},
        attention="eager", outputs=LOGITS),
    Row("dinov2", "Dinov2Model", {"mlp_ratio": 2}),
    Row("dinov2-with-registers", "Dinov2WithRegistersModel", {"use_swiglu_ffn": True},
        attention="eager"),
    Row("dinov3-vit", "DINOv3ViTModel", {"num_register_tokens": 2}),
    Row("vitdet", "VitDetModel", {"window_size": 2, "window_block_indices": [0],
        "use_relative_position_embeddings": True, "pretrain_image_size": IMAGE},
        attention="eager"),
    Row("clip-vision", "CLIPVisionModelWithProjection", {"projection_dim": 24},
        outputs=("image_embeds",)),
    Row("siglip-vision", "SiglipVisionModel", attention="eager",
        outputs=("last_hidden_state", "pooler_output")),
    Row("sam-encoder", "SamVisionModel", {"output_channels": 16, "window_size": 2,
        "global_attn_indexes": [1], "mlp_dim": 48}, attention="eager"),
    Row("yolos", "YolosForObjectDetection", {"num_detection_tokens": 5,
        "image_size": [IMAGE, IMAGE]}, outputs=BOXES),
    Row("dpt", "DPTForDepthEstimation", {"num_hidden_layers": 4,
        "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 12, 16, 24],
        "fusion_hidden_size": 16}, attention="eager", outputs=("predicted_depth",)),
    Row("hiera", "HieraModel", {"embed_dim": 16, "depths": [1, 1, 1], "num_heads": [1, 2, 4],
        "image_size": [IMAGE, IMAGE], "masked_unit_size": [4, 4], "query_stride": [2, 2],
        "patch_size": [7, 7], "num_query_pool": 2,
        "masked_unit_attention": [True, False, False]},
        rejects=("num_hidden_layers", "num_attention_heads", "hidden_size")),
)  # fmt: skip

FOUR_STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
SWIN_SIZES = {"image_size": IMAGE, "patch_size": 2, "embed_dim": 16, "depths": [2, 2],
              "num_heads": [2, 4], "window_size": 4}  # fmt: skip
PYRAMID = FOUR_STAGES | {"num_attention_heads": [1, 2, 2, 4]}

IMAGE_HIERARCHIES = (
    Row("convnext", "ConvNextForImageClassification", FOUR_STAGES, outputs=LOGITS),
    Row("convnext-v2", "ConvNextV2ForImageClassification", FOUR_STAGES, outputs=LOGITS),
    Row("resnet", "ResNetForImageClassification", FOUR_STAGES | {"embedding_size": 8},
        outputs=LOGITS),
    Row("resnet-basic", "ResNetModel", FOUR_STAGES | {"embedding_size": 8,
        "layer_type": "basic"}, outputs=("last_hidden_state", "pooler_output")),
    Row("bit", "BitForImageClassification", FOUR_STAGES | {"embedding_size": 8,
        "num_groups": 4}, outputs=LOGITS),
    Row("regnet", "RegNetForImageClassification", FOUR_STAGES | {"embedding_size": 8,
        "groups_width": 4}, outputs=LOGITS),
    Row("mobilenet-v1", "MobileNetV1ForImageClassification", {"depth_multiplier": 0.25,
        "image_size": IMAGE}, outputs=LOGITS),
    Row("mobilenet-v2", "MobileNetV2ForImageClassification", {"depth_multiplier": 0.25,
        "image_size": IMAGE}, outputs=LOGITS),
    Row("mobilevit", "MobileViTForImageClassification", {"image_size": IMAGE,
        "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 12, 16, 24, 32, 48]},
        outputs=LOGITS, attention="eager"),
    Row("mobilevit-v2", "MobileViTV2ForImageClassification", {"width_multiplier": 0.25,
        "image_size": 64}, outputs=LOGITS, attention="eager"),
    Row("poolformer", "PoolFormerForImageClassification", FOUR_STAGES, outputs=LOGITS),
    Row("swiftformer", "SwiftFormerForImageClassification", {"depths": [1, 1, 1, 1],
        "embed_dims": [8, 16, 24, 32], "mlp_ratio": 2, "image_size": IMAGE}, outputs=LOGITS,
        attention="eager"),
    Row("hgnet-v2", "HGNetV2ForImageClassification", {"embedding_size": 8,
        "hidden_sizes": [16, 24, 32, 48], "stem_channels": [3, 8, 8],
        "stage_in_channels": [8, 16, 24, 32], "stage_mid_channels": [8, 8, 12, 16],
        "stage_out_channels": [16, 24, 32, 48], "stage_num_blocks": [1, 1, 1, 1],
        "stage_numb_of_layers": [2, 2, 2, 2]}, outputs=LOGITS),
    Row("textnet", "TextNetModel", {"stem_out_channels": 8, "hidden_sizes": [8, 8, 12, 16, 24],
        "image_size": [IMAGE, IMAGE], "conv_layer_kernel_sizes": [[[3, 3]], [[3, 1]], [[1, 3]],
        [[3, 3]]], "conv_layer_strides": [[1], [2], [2], [1]]}),
    Row("focalnet", "FocalNetForImageClassification", {"image_size": IMAGE, "patch_size": 2,
        "embed_dim": 16, "depths": [1, 1], "hidden_sizes": [16, 32], "focal_levels": [2, 2],
        "focal_windows": [3, 3]}, outputs=LOGITS),
    Row("swin", "SwinForImageClassification", SWIN_SIZES, outputs=LOGITS),
    Row("swinv2", "Swinv2ForImageClassification", SWIN_SIZES, outputs=LOGITS,
        attention="eager"),
    Row("segformer", "SegformerForSemanticSegmentation", PYRAMID | {"decoder_hidden_size": 16},
        outputs=LOGITS),
    Row("pvt-v2", "PvtV2ForImageClassification", PYRAMID | {"image_size": IMAGE,
        "mlp_ratios": [2, 2, 2, 2]}, outputs=LOGITS, attention="eager"),
    Row("levit", "LevitForImageClassification", {"image_size": 64, "hidden_sizes": [16, 24, 32],
        "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1], "key_dim": [8, 8, 8]},
        outputs=LOGITS, attention="eager"),
    Row("cvt", "CvtForImageClassification", {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3],
        "depth": [1, 2, 3]}, outputs=LOGITS, attention="eager"),
    Row("upernet", "UperNetForSemanticSegmentation", {"backbone_config": {
        "model_type": "convnext", "out_features": ["stage1", "stage2", "stage3", "stage4"],
        **FOUR_STAGES}, "hidden_size": 16, "auxiliary_channels": 8,
        "auxiliary_in_channels": 24}, outputs=LOGITS),
    Row("depth-anything", "DepthAnythingForDepthEstimation", {"backbone_config": {
        "model_type": "dinov2", **VISION_TOWER, "num_hidden_layers": 4, "mlp_ratio": 2,
        "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False}, "patch_size": PATCH,
        "reassemble_hidden_size": 32, "neck_hidden_sizes": [8, 12, 16, 24],
        "fusion_hidden_size": 16, "head_hidden_size": 8}, outputs=("predicted_depth",)),
    Row("detr", "DetrForObjectDetection", DETR_SIZES | BACKBONE, outputs=BOXES,
        attention="eager"),
    Row("conditional-detr", "ConditionalDetrForObjectDetection", DETR_SIZES | BACKBONE,
        outputs=BOXES, attention="eager"),
    Row("deformable-detr", "DeformableDetrForObjectDetection", DETR_SIZES | BACKBONE
        | {"num_feature_levels": 2, "encoder_n_points": 2, "decoder_n_points": 2},
        outputs=BOXES, attention="eager"),
    Row("rt-detr", "RTDetrForObjectDetection", DETR_SIZES | {"backbone_config": {
        "model_type": "rt_detr_resnet", "embedding_size": 8, "hidden_sizes": [8, 12, 16, 24],
        "depths": [1, 1, 1, 1], "layer_type": "basic",
        "out_features": ["stage2", "stage3", "stage4"]}, "encoder_hidden_dim": 32,
        "encoder_in_channels": [12, 16, 24], "decoder_in_channels": [32, 32, 32],
        "encoder_layers": 1, "anchor_image_size": None, "num_denoising": 0},
        outputs=BOXES, attention="eager"),
)  # fmt: skip

VIDEO = (
    Row("timesformer", "TimesformerModel", {"num_frames": 2}, attention="eager"),
    Row("videomae", "VideoMAEForVideoClassification", {"num_frames": 4}, outputs=LOGITS),
    Row("vivit", "VivitModel", {"num_frames": 4, "tubelet_size": [2, PATCH, PATCH]},
        attention="eager"),
)  # fmt: skip

CONVOLUTIONS_OF_SPEECH = {"conv_dim": [16, 16, 16], "conv_stride": [4, 2, 2],
    "conv_kernel": [8, 3, 3], "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 3}  # fmt: skip

WAVEFORM = (
    Row("wav2vec2", "Wav2Vec2ForCTC", CONVOLUTIONS_OF_SPEECH, outputs=LOGITS),
    Row("wav2vec2-conformer", "Wav2Vec2ConformerModel", CONVOLUTIONS_OF_SPEECH
        | {"conv_depthwise_kernel_size": 5, "max_source_positions": 40}, attention="eager"),
    Row("hubert", "HubertModel", CONVOLUTIONS_OF_SPEECH | {"feat_extract_norm": "layer",
        "do_stable_layer_norm": True, "conv_bias": True}, attention="eager"),
    Row("wavlm", "WavLMModel", CONVOLUTIONS_OF_SPEECH | {"num_buckets": 16,
        "max_bucket_distance": 24}, attention="eager"),
    Row("sew", "SEWModel", CONVOLUTIONS_OF_SPEECH, attention="eager"),
)  # fmt: skip

CODECS = (
    Row("dac", "DacModel", {"encoder_hidden_size": 8, "decoder_hidden_size": 32,
        "downsampling_ratios": [2, 4], "upsampling_ratios": [4, 2], "n_codebooks": 2,
        "codebook_size": 16, "codebook_dim": 4, "hidden_size": 32}, attention="eager",
        outputs=("audio_values",)),
)  # fmt: skip

SPECTROGRAM_FRAMES = 24
MEL_BINS = 16
SPEECH_TO_TEXT = {
    "d_model": 32,
    "num_mel_bins": MEL_BINS,
    "input_feat_per_channel": MEL_BINS,
    "conv_channels": 24,
    "max_source_positions": SPECTROGRAM_FRAMES // 2,
    "max_target_positions": 20,
}
SPEECH_TO_TEXT_SIZES = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": SIZES["vocab_size"],
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

STATE_SPACES = (
    Row("mamba", "MambaForCausalLM", {"state_size": 4}, attention="eager", outputs=LOGITS),
    Row("mamba2", "Mamba2ForCausalLM", {"state_size": 8, "num_heads": 8, "head_dim": 8,
        "n_groups": 2, "chunk_size": 4}, attention="eager", outputs=LOGITS),
    Row("falcon-mamba", "FalconMambaForCausalLM", {"state_size": 4}, attention="eager",
        outputs=LOGITS),
    Row("rwkv", "RwkvForCausalLM", {"attention_hidden_size": 32}, attention="eager",
        outputs=LOGITS),
    Row("xlstm", "xLSTMForCausalLM", {"num_heads": 2, "chunk_size": 4, "qk_dim_factor": 0.5,
        "ffn_round_up_to_multiple_of": 8}, attention="eager", outputs=LOGITS),
    Row("bamba", "BambaForCausalLM", {"num_key_value_heads": 2, "attn_layer_indices": [1],
        "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4,
        "mamba_n_groups": 1}, attention="eager", outputs=LOGITS),
)  # fmt: skip

TEXT_AND_IMAGE = (
    Row("clip", "CLIPModel", TOWERS, outputs=("logits_per_image", "text_embeds")),
    Row("siglip", "SiglipModel", TOWERS, attention="eager", outputs=("logits_per_image",)),
    Row("groupvit", "GroupViTModel", TOWERS | {"vision_config": VISION_TOWER | {
        "depths": [1, 1, 1], "num_hidden_layers": 3, "num_group_tokens": [4, 2, 0],
        "num_output_groups": [4, 2, 2]}, "projection_intermediate_dim": 32}, attention="eager",
        outputs=("logits_per_image",)),
    Row("clipseg", "CLIPSegForImageSegmentation", TOWERS | {"extract_layers": [0, 1],
        "reduce_dim": 16, "decoder_num_attention_heads": 2, "decoder_intermediate_size": 24,
        "projection_dim": 32}, outputs=LOGITS),
    Row("blip", "BlipForConditionalGeneration", TOWERS | {"image_text_hidden_size": 16,
        "text_config": TEXT_TOWER | {"encoder_hidden_size": 32}}, attention="eager",
        outputs=LOGITS),
    Row("git", "GitForCausalLM", SIZES | {"vision_config": VISION_TOWER}, attention="eager",
        outputs=LOGITS),
)  # fmt: skip

SERIES = 16
HORIZON = 4
FORECAST_SIZES = {"prediction_length": HORIZON, "context_length": SERIES, "d_model": 32,
    "lags_sequence": [1, 2, 3], "num_time_features": 2}  # fmt: skip

PATCHED_SERIES = (
    Row("patchtst", "PatchTSTForPrediction", {"patch_length": 4, "patch_stride": 4,
        "context_length": SERIES, "d_model": 32, "ffn_dim": 48, "num_input_channels": 3,
        "num_hidden_layers": 2, "prediction_length": HORIZON, "loss": "mse"},
        attention="eager", outputs=("prediction_outputs",)),
    Row("patchtsmixer", "PatchTSMixerForPrediction", {"patch_length": 4, "patch_stride": 4,
        "context_length": SERIES, "d_model": 16, "num_input_channels": 3, "num_layers": 2,
        "prediction_length": HORIZON, "mode": "mix_channel"}, attention="eager",
        outputs=("prediction_outputs",)),
)  # fmt: skip
# Without the head: its loss looks at values, which cannot be exported.
FORECASTS = (
    Row("time-series-transformer", "TimeSeriesTransformerModel", FORECAST_SIZES),
    Row("autoformer", "AutoformerModel", FORECAST_SIZES | {"moving_average": 5,
        "label_length": SERIES - HORIZON}, attention="eager",
        outputs=("last_hidden_state", "trend")),
)  # fmt: skip

GROUPS: tuple[tuple[tuple[Row, ...], dict[str, Any], type[Caller], Callable], ...] = (
    (IMAGE_TRANSFORMERS, VISION_SIZES, PixelCaller, lambda: (image(),)),
    (IMAGE_HIERARCHIES, {}, PixelCaller, lambda: (image(64),)),
    ((Row("swin2sr", "Swin2SRForImageSuperResolution", SWIN_SIZES | {"patch_size": 1,
        "image_size": 16}, outputs=("reconstruction",), attention="eager"),),
        {}, PixelCaller, lambda: (image(16),)),
    (VIDEO, VISION_SIZES, PixelCaller, lambda: (torch.randn(BATCH, 4, 3, IMAGE, IMAGE),)),
    (WAVEFORM, SIZES, WaveformCaller, lambda: (torch.randn(BATCH, 400),)),
    (CODECS, {}, WaveformCaller, lambda: (torch.randn(BATCH, 1, 256),)),
    (STATE_SPACES, SIZES, TextCaller, text),
    (TEXT_AND_IMAGE, {}, TextAndPixelCaller, lambda: (*text(), image())),
    (PATCHED_SERIES, {}, SeriesCaller, lambda: (torch.randn(BATCH, SERIES, 3),)),
    (FORECASTS, {}, ForecastCaller, forecast),
    ((Row("ast", "ASTForAudioClassification", {"num_mel_bins": MEL_BINS, "frequency_stride": 6,
        "time_stride": 6, "max_length": SPECTROGRAM_FRAMES}, outputs=LOGITS),),
        VISION_SIZES, WaveformCaller,
        lambda: (torch.randn(BATCH, SPECTROGRAM_FRAMES, MEL_BINS),)),
    ((Row("wav2vec2-bert", "Wav2Vec2BertModel", {"feature_projection_input_dim": MEL_BINS,
        "conv_depthwise_kernel_size": 5, "left_max_position_embeddings": 6,
        "right_max_position_embeddings": 3}, attention="eager"),), SIZES, FeatureCaller,
        lambda: (torch.randn(BATCH, SPECTROGRAM_FRAMES, MEL_BINS),)),
    ((Row("hifi-gan", "SpeechT5HifiGan", {"model_in_dim": MEL_BINS, "upsample_rates": [4, 2],
        "upsample_initial_channel": 16, "upsample_kernel_sizes": [8, 4],
        "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1, 3], [1, 3]]},
        attention="eager"),), {}, SpectrogramCaller,
        lambda: (torch.randn(BATCH, SPECTROGRAM_FRAMES, MEL_BINS),)),
    ((Row("whisper", "WhisperForConditionalGeneration", SPEECH_TO_TEXT, outputs=LOGITS),),
        SPEECH_TO_TEXT_SIZES, FeatureToTextCaller,
        lambda: (torch.randn(BATCH, MEL_BINS, SPECTROGRAM_FRAMES), token_ids(7))),
    ((Row("speech-to-text", "Speech2TextForConditionalGeneration", SPEECH_TO_TEXT,
        attention="eager", outputs=LOGITS),), SPEECH_TO_TEXT_SIZES, FeatureToTextCaller,
        lambda: (torch.randn(BATCH, SPECTROGRAM_FRAMES, MEL_BINS), token_ids(7))),
    ((Row("moonshine", "MoonshineForConditionalGeneration", {"encoder_num_hidden_layers": 2,
        "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4,
        "decoder_num_attention_heads": 4}, outputs=LOGITS,
        rejects=("num_hidden_layers", "num_attention_heads")),), SIZES, WaveformToTextCaller,
        lambda: (torch.randn(BATCH, 3000), token_ids(7))),
    ((Row("trocr", "VisionEncoderDecoderModel", {
        "encoder": {"model_type": "vit", **VISION_TOWER},
        "decoder": {"model_type": "trocr", **SIZES, "d_model": 32, "decoder_layers": 2,
            "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "cross_attention_hidden_size": 32,
            "is_decoder": True, "add_cross_attention": True}},
        attention="eager", outputs=LOGITS),), {}, PixelToTextCaller,
        lambda: (image(), token_ids(7))),
    ((Row("layoutlm", "LayoutLMModel", {"max_2d_position_embeddings": 64},
        attention="eager"),), SIZES, TextAndBoxCaller, lambda: (*text(), boxes())),
    ((Row("sam", "SamModel", {
        "vision_config": VISION_TOWER | {"output_channels": 16, "window_size": 2,
            "global_attn_indexes": [1], "mlp_dim": 48, "num_pos_feats": 8},
        "prompt_encoder_config": {"hidden_size": 16, "image_size": IMAGE, "patch_size": PATCH,
            "mask_input_channels": 8},
        "mask_decoder_config": {"hidden_size": 16, "mlp_dim": 24, "num_attention_heads": 2,
            "iou_head_hidden_dim": 16}}, attention="eager",
        outputs=("pred_masks", "iou_scores")),), {}, PixelAndPointCaller,
        lambda: (image(), torch.rand(BATCH, 1, 2, 2) * IMAGE)),
)  # fmt: skip
"""Rows with the usual sizes of their configurations, how they are called and their inputs."""


def build_row(
    row: Row, sizes: dict[str, Any], caller: type[Caller], inputs: Callable
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Build a model and its inputs."""
    return caller(row, row.build(sizes)), inputs()


for _rows, *_how in GROUPS:
    for _row in _rows:
        architecture(f"transformers/{_row.name}")(functools.partial(build_row, _row, *_how))
