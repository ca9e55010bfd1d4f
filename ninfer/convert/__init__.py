"""Make artifacts: from Hugging Face checkpoints, and synthetic ones of any geometry."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.convert.byte_tokenizer import build_tokenizer
    from ninfer.convert.conversion import Conversion, convert
    from ninfer.convert.options import ConvertOptions, SynthOptions
    from ninfer.convert.plan import dry_run
    from ninfer.convert.synth import synthesise
    from ninfer.convert.synthetic_model import full_size_weights

__all__ = [
    "Conversion",
    "ConvertOptions",
    "SynthOptions",
    "build_tokenizer",
    "convert",
    "dry_run",
    "full_size_weights",
    "synthesise",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Conversion": "ninfer.convert.conversion",
        "ConvertOptions": "ninfer.convert.options",
        "SynthOptions": "ninfer.convert.options",
        "build_tokenizer": "ninfer.convert.byte_tokenizer",
        "convert": "ninfer.convert.conversion",
        "dry_run": "ninfer.convert.plan",
        "full_size_weights": "ninfer.convert.synthetic_model",
        "synthesise": "ninfer.convert.synth",
    },
)
