"""What a user may ask of `ninfer synth` and `ninfer convert`."""

from dataclasses import dataclass
from pathlib import Path

from ninfer.artifact.directory import Identity
from ninfer.convert.geometry import DRAFTERS, SCALES, SHAPES
from ninfer.errors import UsageError
from ninfer.models.config import GENERATIONS
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
            if not separator or not value.isdecimal() or len(value) > 10 or int(value) == 0:
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


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """One conversion of a checkpoint."""

    target: str | None = option(
        None,
        "what to make: a registered model and weights id such as qwen3.6-27b/nvfp4, or a name of "
        "your own with groupwise-int or nvfp4 for any other size",
        metavar="MODEL/WEIGHTS",
    )
    source: Path | None = option(
        None, "folder of the checkpoint: safetensors, config.json, tokenizer", metavar="DIR"
    )
    base_source: Path | None = option(
        None,
        "folder of the unquantised checkpoint, when --source is a quantised one: it gives the text "
        "files, vision, MTP and draft head, and what --source lacks",
        metavar="DIR",
    )
    drafter_source: Path | None = option(
        None, "folder of the DFlash or DFlash2 checkpoint", metavar="DIR"
    )
    draft_counts: Path | None = option(
        None,
        "counts of tokens, 64-bit little-endian, one for each row of the vocabulary: they choose "
        "the rows of the draft head",
        metavar="FILE",
    )
    draft_head_rows: int | None = option(
        None, "rows of the draft head of a target of your own", metavar="N", unset="no draft head"
    )
    generation: str | None = option(
        None,
        "whose formats a target of your own takes",
        choices=GENERATIONS,
        unset=GENERATIONS[0],
    )
    framing: str = option("v2", "container revision", choices=("v2", "v3"))
    dry_run: bool = option(False, "print every object and the exact size, write nothing")
    resource_bytes: int | None = option(
        None, "with --dry-run: bytes of the six text files together", metavar="N"
    )
    output: Path | None = option(None, "file to write", metavar="FILE")

    def identity(self) -> Identity:
        """Model and weights id of the target. Raises UsageError for another form."""
        model_id, _, weights_id = (self.target or "").rpartition("/")
        if not model_id or not weights_id:
            raise UsageError(f"--target {self.target}: must be MODEL/WEIGHTS")
        return Identity(model_id, weights_id)


def check_convert(options: ConvertOptions) -> None:
    """Refuse missing options and values outside their range. Raises UsageError."""
    check_choices(options)
    if options.target is None:
        raise UsageError("--target MODEL/WEIGHTS is missing; say what to make")
    options.identity()
    for name in ("draft_head_rows", "resource_bytes"):
        value = getattr(options, name)
        if value is not None and value < 6:
            raise UsageError(f"--{name.replace('_', '-')} {value}: must be at least 6")
    if options.dry_run:
        return
    if options.resource_bytes is not None:
        raise UsageError("--resource-bytes: only --dry-run reads it")
    if options.source is None:
        raise UsageError("--source DIR is missing; name the folder of the checkpoint")
    if options.output is None:
        raise UsageError("--output FILE is missing; name the file to write")
