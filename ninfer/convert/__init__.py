"""Make artifacts: synthetic ones of any geometry."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.convert.byte_tokenizer import build_tokenizer
    from ninfer.convert.options import SynthOptions
    from ninfer.convert.synth import synthesise
    from ninfer.convert.synthetic_model import full_size_weights

__all__ = ["SynthOptions", "build_tokenizer", "full_size_weights", "synthesise"]

__getattr__ = lazy_exports(
    __name__,
    {
        "SynthOptions": "ninfer.convert.options",
        "build_tokenizer": "ninfer.convert.byte_tokenizer",
        "full_size_weights": "ninfer.convert.synthetic_model",
        "synthesise": "ninfer.convert.synth",
    },
)
