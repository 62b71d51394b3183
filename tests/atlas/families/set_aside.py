"""Architectures of every package that were declared after the rules of pairing: `SET_ASIDE_LATER`
names all of them, and they are compared only once.

Those of `transformers` are rows of tables, as in `transformers_other`.
"""

import functools

import torch
from diffusers import AutoencoderDC, CogVideoXTransformer3DModel, HunyuanDiT2DModel
from diffusers.models.embeddings import get_2d_rotary_pos_embed
from monai.networks.nets import SPADEDiffusionModelUNet, VoxelMorph, VoxelMorphUNet
from pytorchcv.models.fishnet import FishNet
from pytorchcv.models.nasnet import get_nasnet
from pytorchcv.models.resnesta import ResNeStA
from torch import nn
from x_transformers import Decoder

from atlas.architecture import architecture
from atlas.families.diffusion import ByKeyword
from atlas.families.pytorchcv_nets import CLASSES, SIZE, WIDTHS, classifier
from atlas.families.transformers_other import (
    CONVOLUTIONS_OF_SPEECH,
    IMAGE,
    MEL_BINS,
    PYRAMID,
    SPECTROGRAM_FRAMES,
    TEXT_TOWER,
    VISION_SIZES,
    VISION_TOWER,
    PixelCaller,
    TextAndBoxCaller,
    TextAndPixelCaller,
    WaveformCaller,
    boxes,
    build_row,
    image,
    text,
)
from atlas.families.transformers_text import (
    BATCH,
    GROUPED_QUERIES,
    LOGITS,
    SIZES,
    VOCABULARY,
    Caller,
    Row,
    build_text,
    token_ids,
)
from atlas.families.x_transformers import SMALL, language_model

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]

TEXT = (
    Row("gemma3n", "Gemma3nForCausalLM", GROUPED_QUERIES | {"head_dim": 8, "sliding_window": 4,
        "num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": [
            "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0], "altup_num_inputs": 3,
        "laurel_rank": 8, "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCABULARY}, outputs=LOGITS),
    Row("exaone4", "Exaone4ForCausalLM", GROUPED_QUERIES | {"sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"]}, attention="eager",
        outputs=LOGITS),
    Row("ernie4-5-moe", "Ernie4_5_MoeForCausalLM", GROUPED_QUERIES | {"moe_num_experts": 4,
        "moe_k": 2, "moe_intermediate_size": 24, "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1}, outputs=LOGITS),
    Row("jamba", "JambaForCausalLM", GROUPED_QUERIES | {"attn_layer_period": 2,
        "attn_layer_offset": 1, "num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 4,
        "use_mamba_kernels": False}, outputs=LOGITS),
    Row("yoso", "YosoForMaskedLM", {"hash_code_len": 4, "conv_window": 3}, attention="eager",
        outputs=LOGITS),
)  # fmt: skip

MASKED_TOWER = {"decoder_hidden_size": 24, "decoder_num_hidden_layers": 1,
                "decoder_num_attention_heads": 4, "decoder_intermediate_size": 48}  # fmt: skip
SERIES = 32
PATCHES = 12
PIXELS = 48
"""Values of a patch that is flattened."""


class PixelAndNoiseCaller(Caller):
    """The noise chooses the patches that are masked."""

    def forward(self, pixel_values, noise):
        return self.call(pixel_values=pixel_values, noise=noise)


class SpectrogramAndNoiseCaller(Caller):
    """The spectrogram chooses the kernels that shape the noise."""

    def forward(self, input_features, noise_sequence):
        return self.call(input_features=input_features, noise_sequence=noise_sequence)


class PatchesToTextCaller(Caller):
    def forward(self, flattened_patches, attention_mask, decoder_input_ids):
        return self.call(
            flattened_patches=flattened_patches,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
        )


class PaddedSeriesCaller(Caller):
    def forward(self, past_values, past_values_padding, freq):
        return self.call(
            past_values=past_values, past_values_padding=past_values_padding, freq=freq
        )


def patches() -> tuple[torch.Tensor, ...]:
    """Patches after their rows and columns, and their mask."""
    places = torch.cartesian_prod(torch.arange(1.0, 4.0), torch.arange(1.0, 5.0))
    values = torch.randn(BATCH, PATCHES, PIXELS)
    return torch.cat([places.expand(BATCH, -1, -1), values], dim=-1), torch.ones(BATCH, PATCHES)


def padded_series() -> tuple[torch.Tensor, ...]:
    """Series whose first values are padding, and how often each is measured."""
    padding = torch.zeros(BATCH, SERIES)
    padding[1, :6] = 1
    return torch.randn(BATCH, SERIES), padding, torch.tensor([[0], [2]])


GROUPS = (
    (Row("pvt", "PvtForImageClassification", PYRAMID | {"image_size": 64,
        "mlp_ratios": [2, 2, 2, 2]}, outputs=LOGITS, attention="eager"),
        {}, PixelCaller, lambda: (image(64),)),
    (Row("mgp-str", "MgpstrForSceneTextRecognition", {"image_size": [IMAGE, IMAGE],
        "mlp_ratio": 2.0, "max_token_length": 5, "num_character_labels": 11,
        "num_bpe_labels": 13, "num_wordpiece_labels": 17}, outputs=LOGITS),
        VISION_SIZES, PixelCaller, lambda: (image(),)),
    (Row("vit-mae", "ViTMAEForPreTraining", MASKED_TOWER, outputs=LOGITS),
        VISION_SIZES, PixelAndNoiseCaller, lambda: (image(), torch.rand(BATCH, 16))),
    (Row("sew-d", "SEWDModel", CONVOLUTIONS_OF_SPEECH | {"position_buckets": 8},
        attention="eager"),
        SIZES, WaveformCaller, lambda: (torch.randn(BATCH, 400),)),
    (Row("univnet", "UnivNetModel", {"model_in_channels": 8, "model_hidden_channels": 8,
        "num_mel_bins": MEL_BINS, "resblock_kernel_sizes": [3, 3],
        "resblock_stride_sizes": [4, 2], "resblock_dilation_sizes": [[1, 3], [1, 3]],
        "kernel_predictor_num_blocks": 1, "kernel_predictor_hidden_channels": 8},
        attention="eager", outputs=("waveforms",)),
        {}, SpectrogramAndNoiseCaller, lambda: (
            torch.randn(BATCH, SPECTROGRAM_FRAMES, MEL_BINS),
            torch.randn(BATCH, SPECTROGRAM_FRAMES, 8))),
    (Row("lilt", "LiltModel", {"hidden_size": 48, "channel_shrink_ratio": 2,
        "max_2d_position_embeddings": 64}, attention="eager"),
        SIZES, TextAndBoxCaller, lambda: (*text(), boxes())),
    (Row("pix2struct", "Pix2StructForConditionalGeneration", {
        "text_config": {"vocab_size": VOCABULARY, "hidden_size": 32, "d_kv": 8, "d_ff": 48,
            "num_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 8},
        "vision_config": {"hidden_size": 32, "patch_embed_hidden_size": PIXELS, "d_ff": 48,
            "d_kv": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "seq_len": 16}},
        attention="eager", outputs=LOGITS),
        {}, PatchesToTextCaller, lambda: (*patches(), token_ids(7))),
    (Row("x-clip", "XCLIPModel", {"text_config": TEXT_TOWER, "vision_config": VISION_TOWER | {
        "mit_hidden_size": 32, "mit_intermediate_size": 48, "mit_num_attention_heads": 4,
        "num_frames": 3}, "projection_dim": 32, "prompt_layers": 1,
        "prompt_num_attention_heads": 4}, outputs=("logits_per_video", "video_embeds")),
        {}, TextAndPixelCaller,
        lambda: (*text(), torch.randn(BATCH, 3, 3, IMAGE, IMAGE))),
    (Row("timesfm", "TimesFmModel", {"patch_length": 8, "context_length": SERIES,
        "horizon_length": 8, "head_dim": 8, "use_positional_embedding": True}),
        SIZES, PaddedSeriesCaller, padded_series),
)  # fmt: skip
"""Rows with the usual sizes of their configurations, how they are called and their inputs."""

for _row in TEXT:
    architecture(f"transformers/{_row.name}")(functools.partial(build_text, _row))
for _row, *_how in GROUPS:
    architecture(f"transformers/{_row.name}")(functools.partial(build_row, _row, *_how))


class HunyuanDiT(nn.Module):
    """Denoises an image for two texts with masks; its rotary positions are constants."""

    def __init__(self) -> None:
        super().__init__()
        self.network = HunyuanDiT2DModel(
            num_attention_heads=2,
            attention_head_dim=16,
            in_channels=4,
            patch_size=2,
            sample_size=16,
            hidden_size=32,
            num_layers=4,
            mlp_ratio=2.0,
            cross_attention_dim=24,
            cross_attention_dim_t5=32,
            pooled_projection_dim=16,
            text_len=5,
            text_len_t5=6,
            use_style_cond_and_image_meta_size=False,
        )
        cosine, sine = get_2d_rotary_pos_embed(16, ((0, 0), (8, 8)), (8, 8), output_type="pt")
        self.register_buffer("cosine", cosine)
        self.register_buffer("sine", sine)

    def forward(
        self,
        sample: torch.Tensor,
        timestep: torch.Tensor,
        text: torch.Tensor,
        text_t5: torch.Tensor,
        mask: torch.Tensor,
        mask_t5: torch.Tensor,
    ) -> torch.Tensor:
        return self.network(
            sample,
            timestep,
            encoder_hidden_states=text,
            text_embedding_mask=mask,
            encoder_hidden_states_t5=text_t5,
            text_embedding_mask_t5=mask_t5,
            image_rotary_emb=(self.cosine, self.sine),
            return_dict=False,
        )[0]


@architecture("diffusers/hunyuan-dit-2d")
def hunyuan_dit_2d() -> Built:
    sample, timestep = torch.randn(1, 4, 16, 16), torch.tensor([17.0])
    texts = (torch.randn(1, 5, 24), torch.randn(1, 6, 32))
    masks = (torch.tensor([[1, 1, 1, 1, 0]]), torch.tensor([[1, 1, 1, 0, 0, 0]]))
    return HunyuanDiT(), (sample, timestep, *texts, *masks)


@architecture("diffusers/cogvideox-transformer-3d")
def cogvideox_transformer_3d() -> Built:
    network = CogVideoXTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        out_channels=4,
        time_embed_dim=16,
        text_embed_dim=24,
        num_layers=2,
        sample_width=8,
        sample_height=8,
        sample_frames=9,
        max_text_seq_length=5,
    )
    names = ("hidden_states", "encoder_hidden_states", "timestep")
    inputs = (torch.randn(1, 3, 4, 8, 8), torch.randn(1, 5, 24), torch.tensor([17]))
    return ByKeyword(network, *names), inputs


@architecture("diffusers/autoencoder-dc")
def autoencoder_dc() -> Built:
    blocks = ("ResBlock", "ResBlock", "EfficientViTBlock")
    network = AutoencoderDC(
        latent_channels=8,
        attention_head_dim=8,
        encoder_block_types=blocks,
        decoder_block_types=blocks,
        encoder_block_out_channels=(8, 16, 32),
        decoder_block_out_channels=(8, 16, 32),
        encoder_layers_per_block=(1, 1, 1),
        decoder_layers_per_block=(1, 1, 1),
        encoder_qkv_multiscales=((), (), (5,)),
        decoder_qkv_multiscales=((), (), (5,)),
    )
    return ByKeyword(network, "sample"), (torch.randn(1, 3, 32, 32),)


@architecture("monai/voxelmorph")
def voxelmorph() -> Built:
    backbone = VoxelMorphUNet(2, 2, 8, channels=(8, 12, 16, 16), final_conv_channels=(8,))
    network = VoxelMorph(backbone, integration_steps=3, spatial_dims=2)
    return network, (torch.rand(1, 1, 32, 32), torch.rand(1, 1, 32, 32))


@architecture("monai/spade-diffusion-unet")
def spade_diffusion_unet() -> Built:
    network = SPADEDiffusionModelUNet(
        spatial_dims=2,
        in_channels=1,
        out_channels=1,
        label_nc=3,
        num_res_blocks=1,
        channels=(8, 16),
        attention_levels=(False, True),
        norm_num_groups=4,
        spade_intermediate_channels=8,
    )
    labels = nn.functional.one_hot(torch.randint(0, 3, (1, 16, 16)), 3).permute(0, 3, 1, 2)
    return network, (torch.randn(1, 1, 16, 16), torch.tensor([17]), labels.float())


@architecture("pytorchcv/resnesta10")
def resnesta() -> Built:
    return classifier(ResNeStA(WIDTHS, 16, False, num_classes=CLASSES))


@architecture("pytorchcv/fishnet")
def fishnet() -> Built:
    network = FishNet(
        direct_channels=[[[16], [32], [64]], [[64], [48], [32]], [[40], [104], [200]]],
        skip_channels=[[[8], [16], [32], [64]], [[64], [96], [64], [0]]],
        init_block_channels=8,
        num_classes=CLASSES,
    )
    return classifier(network)


@architecture("pytorchcv/nasnet")
def nasnet() -> Built:
    network = get_nasnet(
        repeat=2,
        penultimate_filters=96,
        init_block_channels=8,
        final_pool_size=SIZE // 32,
        extra_padding=True,
        skip_reduction_layer_input=False,
        in_size=(SIZE, SIZE),
        num_classes=CLASSES,
    )
    return classifier(network)


@architecture("x-transformers/data-dependent-alibi")
def data_dependent_alibi() -> Built:
    return language_model(Decoder(**SMALL, attn_data_dependent_alibi=True))


class PatchMixer(nn.Module):
    """Mixes overlapping patches and adds them up to an image again."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(3, 8, 3, padding=1)
        self.unfold = nn.Unfold(4, stride=2, padding=1)
        self.mix = nn.Linear(8 * 16, 8 * 16)
        self.fold = nn.Fold((16, 16), 4, stride=2, padding=1)
        self.after = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = self.unfold(torch.tanh(self.before(x)))
        mixed = self.mix(columns.transpose(1, 2)).transpose(1, 2)
        return self.after(self.fold(torch.tanh(mixed)))


@architecture("torch/unfold-fold")
def unfold_fold() -> Built:
    return PatchMixer(), (torch.randn(2, 3, 16, 16),)
