"""Convolutional networks of pytorchcv, narrower and for images of 64 x 64.

They are built from their modules: `model_provider` imports torchvision, which is not installed.
"""

import torch
from pytorchcv.models.bisenet import BiSeNet
from pytorchcv.models.cbamresnet import CbamResNet
from pytorchcv.models.common.arch import MultiOutputSequential
from pytorchcv.models.common.conv import conv1x1_block
from pytorchcv.models.darknet import DarkNet
from pytorchcv.models.densenet import DenseNet
from pytorchcv.models.dla import DLA, DLAResBlock
from pytorchcv.models.efficientnet import EfficientNet
from pytorchcv.models.ghostnet import get_ghostnet
from pytorchcv.models.hrnet import HRFinalBlock, HRNet
from pytorchcv.models.igcv3 import IGCV3
from pytorchcv.models.lwopenpose_cmupan import LwOpenPose
from pytorchcv.models.mnasnet import get_mnasnet
from pytorchcv.models.mobilenet import MobileNet
from pytorchcv.models.mobilenetv2 import get_mobilenetv2
from pytorchcv.models.mobilenetv3 import get_mobilenetv3
from pytorchcv.models.peleenet import PeleeNet
from pytorchcv.models.preresnet import PreResNet
from pytorchcv.models.resnet import ResNet
from pytorchcv.models.resnext import ResNeXt
from pytorchcv.models.seresnet import SEResNet
from pytorchcv.models.shufflenet import get_shufflenet
from pytorchcv.models.shufflenetv2 import ShuffleNetV2
from pytorchcv.models.sknet import SKNet
from pytorchcv.models.squeezenet import SqueezeNet
from pytorchcv.models.squeezenext import SqueezeNext
from pytorchcv.models.vgg import VGG
from torch import nn

from atlas.architecture import architecture

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]
SIZE = 64
CLASSES = 10
WIDTHS = [[16], [24], [32], [48]]
"""Channels of four stages of one block."""


def classifier(network: nn.Module) -> Built:
    """The network with its last pool fitted: the package's own pools are for images of 224."""
    if isinstance(getattr(network.features, "final_pool", None), nn.AvgPool2d):
        network.features.final_pool = nn.AvgPool2d(SIZE // 32, stride=1)
    return network, (torch.randn(1, 3, SIZE, SIZE),)


def growing(first: int, growth: int, layers: tuple[int, ...], *, halved: bool) -> list[list[int]]:
    """Channels after each layer of a network that concatenates; transitions may halve them."""
    channels, width = [], first
    for count in layers:
        channels.append([width + growth * (index + 1) for index in range(count)])
        width = channels[-1][-1] // (2 if halved else 1)
    return channels


@architecture("pytorchcv/resnet10")
def resnet() -> Built:
    return classifier(ResNet(WIDTHS, 16, False, False, num_classes=CLASSES))


@architecture("pytorchcv/resnet-bottleneck")
def resnet_bottleneck() -> Built:
    return classifier(
        ResNet([[32] * 2, [64] * 2, [96], [128]], 16, True, True, num_classes=CLASSES)
    )


@architecture("pytorchcv/preresnet10")
def preresnet() -> Built:
    return classifier(PreResNet(WIDTHS, 16, False, False, num_classes=CLASSES))


@architecture("pytorchcv/seresnet10")
def seresnet() -> Built:
    return classifier(SEResNet(WIDTHS, 16, False, False, num_classes=CLASSES))


@architecture("pytorchcv/cbam-resnet10")
def cbam_resnet() -> Built:
    return classifier(CbamResNet(WIDTHS, 16, False, num_classes=CLASSES))


@architecture("pytorchcv/resnext14")
def resnext() -> Built:
    return classifier(ResNeXt([[64], [96], [128], [192]], 16, 4, 16, num_classes=CLASSES))


@architecture("pytorchcv/sknet")
def sknet() -> Built:
    return classifier(SKNet([[64], [64], [128], [192]], 16, num_classes=CLASSES))


@architecture("pytorchcv/mobilenet")
def mobilenet() -> Built:
    channels = [[8], [16], [32, 32], [48, 48], [64, 64, 64], [96, 96]]
    return classifier(MobileNet(channels, first_stage_stride=False, num_classes=CLASSES))


@architecture("pytorchcv/mobilenetv2")
def mobilenetv2() -> Built:
    return classifier(get_mobilenetv2(0.25, num_classes=CLASSES))


@architecture("pytorchcv/mobilenetv3")
def mobilenetv3() -> Built:
    return classifier(get_mobilenetv3("small", 0.5, num_classes=CLASSES))


@architecture("pytorchcv/squeezenet")
def squeezenet() -> Built:
    network = SqueezeNet(
        channels=[[32, 32], [64, 64], [96, 96, 128, 128]],
        residuals=[[0, 1], [0, 1], [0, 1, 0, 1]],
        init_block_kernel_size=3,
        init_block_channels=24,
        num_classes=CLASSES,
    )
    network.output.final_pool = nn.AdaptiveAvgPool2d(1)
    return network, (torch.randn(1, 3, SIZE, SIZE),)


@architecture("pytorchcv/squeezenext")
def squeezenext() -> Built:
    return classifier(
        SqueezeNext([[16] * 2, [24] * 2, [32] * 2, [48]], 16, 32, num_classes=CLASSES)
    )


@architecture("pytorchcv/shufflenet")
def shufflenet() -> Built:
    return classifier(get_shufflenet(3, 0.25, num_classes=CLASSES))


@architecture("pytorchcv/shufflenetv2")
def shufflenetv2() -> Built:
    return classifier(ShuffleNetV2([[32] * 2, [48] * 3, [64] * 2], 16, 96, num_classes=CLASSES))


@architecture("pytorchcv/efficientnet")
def efficientnet() -> Built:
    network = EfficientNet(
        channels=[[8], [12, 12], [16, 16], [24, 24, 32], [48, 64]],
        init_block_channels=16,
        final_block_channels=128,
        kernel_sizes=[[3], [3, 3], [5, 5], [3, 3, 5], [5, 3]],
        strides_per_stage=[1, 2, 2, 2, 2],
        expansion_factors=[[1], [6, 6], [6, 6], [6, 6, 6], [6, 6]],
        num_classes=CLASSES,
    )
    return classifier(network)


@architecture("pytorchcv/densenet")
def densenet() -> Built:
    channels = growing(16, 8, (3, 4, 4, 3), halved=True)
    return classifier(DenseNet(channels, 16, num_classes=CLASSES))


@architecture("pytorchcv/ghostnet")
def ghostnet() -> Built:
    return classifier(get_ghostnet(0.5, num_classes=CLASSES))


@architecture("pytorchcv/igcv3")
def igcv3() -> Built:
    # Its full depth, with untrained norms, amplifies rounding a thousandfold.
    channels = [[8], [12, 12], [16, 16], [24, 24], [32]]
    return classifier(IGCV3(channels, 8, 64, num_classes=CLASSES))


@architecture("pytorchcv/mnasnet")
def mnasnet() -> Built:
    return classifier(get_mnasnet("small", 1.0, num_classes=CLASSES))


@architecture("pytorchcv/darknet-tiny")
def darknet() -> Built:
    channels = [[8], [16], [8, 32, 8, 32], [16, 64, 16, 64], [32, 128, 32, 128, 64]]
    return classifier(DarkNet(channels, True, SIZE // 16, False, num_classes=CLASSES))


@architecture("pytorchcv/vgg11-bn")
def vgg() -> Built:
    network = VGG([[8], [16], [24, 24], [32, 32], [32, 32]], use_bn=True, num_classes=CLASSES)
    # The package fixes the first dense layer to 49 places and 4096 features.
    dense = network.output.fc1
    dense.fc, network.output.fc2.fc = nn.Linear(32 * 4, 96), nn.Linear(96, 64)
    network.output.fc3 = nn.Linear(64, CLASSES)
    return classifier(network)


@architecture("pytorchcv/peleenet")
def peleenet() -> Built:
    channels = growing(16, 16, (2, 2, 3, 2), halved=False)
    return classifier(PeleeNet(channels, 16, [1, 2, 4, 4], num_classes=CLASSES))


@architecture("pytorchcv/dla")
def dla() -> Built:
    return classifier(
        DLA([1, 2, 2, 1], [16, 24, 32, 48], 8, DLAResBlock, False, num_classes=CLASSES)
    )


@architecture("pytorchcv/hrnet")
def hrnet() -> Built:
    channels = [[8, 16], [8, 16, 24], [8, 16, 24, 32]]
    subblocks = [[1] * len(branches) for branches in channels]
    network = HRNet(channels, 32, 1, [1, 1, 1], subblocks)
    # The package fixes the widths of the last block, which would hold nine of ten parameters.
    network.features.final_block = HRFinalBlock(channels[-1], [16, 32, 48, 64])
    network.features.final_block.final_layer = conv1x1_block(
        in_channels=64, out_channels=96, bias=True
    )
    network.output = nn.Linear(96, CLASSES)
    return classifier(network)


@architecture("pytorchcv/bisenet")
def bisenet() -> Built:
    def backbone() -> tuple[nn.Sequential, list[int]]:
        stages = list(ResNet(WIDTHS, 16, False, False).features)[:-1]
        outputs = MultiOutputSequential(return_last=False)
        for index, stage in enumerate(stages):
            stage.do_output = index >= 2
            outputs.add_module(f"stage{index}", stage)
        return outputs, [24, 32, 48]

    network = BiSeNet(backbone, aux=False, in_size=(SIZE, SIZE), num_classes=5)
    return network, (torch.randn(1, 3, SIZE, SIZE),)


@architecture("pytorchcv/lwopenpose")
def lwopenpose() -> Built:
    network = LwOpenPose(
        encoder_channels=[[16], [24, 24], [32, 32, 48, 48]],
        encoder_paddings=[[1], [1, 1], [1, 1, 2, 1]],
        encoder_init_block_channels=8,
        encoder_final_block_channels=32,
        refinement_units=1,
        calc_3d_features=False,
        keypoints=5,
        in_size=(SIZE, SIZE),
    )
    return network, (torch.randn(1, 3, SIZE, SIZE),)
