"""Exports for tests of matching, and what ONNX Runtime computes of them."""

import logging
import warnings
from functools import cache

import torch

import syncpoint as sp
from models.onnx_files import NETS


def export(model, args, **options):
    """The exported model; torch tells of its troubles on every channel there is."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                model, tuple(args), dynamo=True, verbose=False, **options
            ).model_proto
    finally:
        logging.disable(logging.NOTSET)


def run(model, args, fusion="unfused"):
    """The run of a model."""
    return sp.capture(model, tuple(a.numpy() for a in args), fusion=fusion)


@cache
def in_torch(net):
    """The run of one of the exported nets in PyTorch, made once a process."""
    make, inputs = NETS[net]
    return sp.capture(make(), inputs())
