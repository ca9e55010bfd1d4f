"""What a user may ask of `ninfer synth`."""

from dataclasses import dataclass
from pathlib import Path

from ninfer.convert.geometry import DRAFTERS, SCALES, SHAPES
from ninfer.errors import UsageError
from ninfer.options import check_choices, option


@dataclass(frozen=True, slots=True)
class SynthOptions:
    """One synthetic artifact."""

    like: str = option("qwen3.6-27b", "model whose shape to take", choices=tuple(SHAPES))
    scale: str = option(
        "tiny",
        "about 1 or 20 million parameters, or every size as published (about 20 GB, for speed "
        "work)",
        choices=SCALES,
    )
    drafter: str | None = option(
        None, "add this drafter to those of the model", choices=DRAFTERS, unset="none added"
    )
    set: tuple[str, ...] = option(
        (), "replace a size of the text configuration; repeatable", metavar="NAME=N"
    )
    seed: int = option(0, "same seed and sizes, same bytes", metavar="N")
    output: Path | None = option(None, "file to write", metavar="FILE")

    def overrides(self) -> dict[str, int]:
        """The sizes of `--set`. Raises UsageError for one that is not NAME=N."""
        pairs = {}
        for text in self.set:
            name, separator, value = text.partition("=")
            if not separator or not value.isdecimal() or int(value) == 0:
                raise UsageError(f"--set {text}: must be NAME=N with a positive whole number")
            pairs[name] = int(value)
        return pairs


def check_synth(options: SynthOptions) -> None:
    """Refuse values outside the choices and a missing file name. Raises UsageError."""
    check_choices(options)
    if options.output is None:
        raise UsageError("--output FILE is missing; name the file to write")
    if options.seed < 0:
        raise UsageError(f"--seed {options.seed}: must not be negative")
