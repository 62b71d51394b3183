"""All the small nets by name, each as a maker and a giver of inputs."""

from models.casts import casts_inputs, make_casts
from models.cnn import cnn_inputs, make_cnn
from models.inplace import inplace_inputs, make_inplace
from models.nested import make_nested, nested_inputs
from models.reused import make_reused, reused_inputs
from models.several import make_several, several_inputs
from models.transformer import make_transformer, transformer_inputs

NETS = {
    "transformer": (make_transformer, transformer_inputs),
    "cnn": (make_cnn, cnn_inputs),
    "nested": (make_nested, nested_inputs),
    "inplace": (make_inplace, inplace_inputs),
    "several": (make_several, several_inputs),
    "reused": (make_reused, reused_inputs),
    "casts": (make_casts, casts_inputs),
}
