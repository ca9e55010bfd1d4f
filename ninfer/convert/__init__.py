"""Make artifacts: synthetic ones of any small geometry."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.convert.byte_tokenizer import build_tokenizer
    from ninfer.convert.options import SynthOptions
    from ninfer.convert.synth import synthesise

__all__ = ["SynthOptions", "build_tokenizer", "synthesise"]

__getattr__ = lazy_exports(
    __name__,
    {
        "SynthOptions": "ninfer.convert.options",
        "build_tokenizer": "ninfer.convert.byte_tokenizer",
        "synthesise": "ninfer.convert.synth",
    },
)
