"""Hugging Face checkpoints to artifacts: checked first, written object by object, resumable."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from ninfer.artifact import TensorEntry
from ninfer.artifact.directory import encode_directory
from ninfer.artifact.framing import ID_BYTES
from ninfer.convert.checkpoint import read_json
from ninfer.convert.draft_ids import choose_draft_ids, read_counts, special_ids
from ninfer.convert.encode import Encoder
from ninfer.convert.options import ConvertOptions
from ninfer.convert.partial_file import PartialArtifact
from ninfer.convert.plan import ConversionPlan, file_plan, plan_conversion
from ninfer.convert.recheck import recheck
from ninfer.errors import CheckpointError, UsageError
from ninfer.version import VERSION

Progress = Callable[[str, int, int], None]

# Forms that a weight may have in a checkpoint; one that is used makes the others superfluous.
_FORMS: Final = ("weight", "weight_packed", "weight_scale", "weight_global_scale")
# Fields that serve quantised caches and activations only.
_SIDE_FIELDS: Final = ("k_scale", "v_scale", "input_global_scale", "input_scale")


@dataclass(frozen=True, slots=True)
class Conversion:
    """How it went: objects found whole from an earlier run, and source tensors left unused."""

    bytes: int
    objects: int
    resumed: int
    unused: tuple[str, ...]


def convert(options: ConvertOptions, progress: Progress | None = None) -> Conversion:
    """Write the artifact that `options` ask for.

    A run that was killed leaves `OUTPUT.partial` and its journal; the same call goes on from there
    and gives the same bytes. The file takes its name only when it was read back and compared with
    its sources. Raises CheckpointError, ConfigError, FormatError or ArtifactError naming the tensor
    or file that is at fault; nothing is written before all names, shapes and dtypes are right.
    """
    assert options.output is not None
    plan = plan_conversion(options)
    encoder = Encoder(plan.sources, _draft_ids(plan, options))
    used = _check_sources(plan, encoder)
    unused = _unused(plan, used)
    digest = _conversion_digest(plan, options)
    files = file_plan(plan.directory, plan.config, options, digest[:ID_BYTES])
    with PartialArtifact(options.output, files, digest.hex()) as partial:
        resumed = partial.resume(progress)
        _write(plan, encoder, partial, resumed, progress)
        recheck(partial.path, plan.directory, plan.specs, plan.resources, encoder, plan.source_map)
        partial.commit()
    return Conversion(
        bytes=options.output.stat().st_size,
        objects=len(plan.directory.entries),
        resumed=resumed,
        unused=unused,
    )


def _write(
    plan: ConversionPlan,
    encoder: Encoder,
    partial: PartialArtifact,
    resumed: int,
    progress: Progress | None,
) -> None:
    entries = plan.directory.entries
    total = sum(entry.bytes for entry in entries)
    done = sum(entry.bytes for entry in entries[:resumed])
    for entry in entries[resumed:]:
        if not isinstance(entry, TensorEntry):
            partial.put_bytes(entry, plan.resources[entry.name])
        else:
            source, rows = plan.source_map[entry.name], entry.shape[0] if entry.shape else 1
            for start, stop in encoder.spans(entry):
                partial.put_rows(entry, start, encoder.block(entry, source, start, stop))
                encoder.release()
                if progress:
                    progress(entry.name, done + entry.bytes * stop // rows, total)
        partial.finish(entry)
        done += entry.bytes


def _draft_ids(plan: ConversionPlan, options: ConvertOptions) -> Tensor | None:
    rows = plan.config.draft_head_rows
    if not rows:
        if options.draft_counts is not None:
            raise UsageError("--draft-counts: the target has no draft head; leave it out")
        return None
    if options.draft_counts is None:
        raise UsageError(
            "--draft-counts FILE is missing; the target has a draft head, and the counts of tokens "
            "choose its rows"
        )
    text = plan.config.text
    counts = read_counts(options.draft_counts, text.vocab_rows)
    folder = (plan.sources.base or plan.sources.main).folder
    forced = special_ids(read_json(folder / "tokenizer_config.json"))
    return choose_draft_ids(counts, forced, text.addressable, rows)


def _check_sources(plan: ConversionPlan, encoder: Encoder) -> set[str]:
    """Names of all source tensors that are used, each found and of the right shape and dtype."""
    used: set[str] = set()
    for entry in plan.directory.entries:
        if isinstance(entry, TensorEntry):
            used |= encoder.check(entry, plan.source_map[entry.name])
    encoder.release()
    return used


def _unused(plan: ConversionPlan, used: set[str]) -> tuple[str, ...]:
    """Tensors of the main and drafter checkpoints that go nowhere.

    Raises CheckpointError for one of the text decoder: a model without it is another model. A
    tensor in a form that was not wanted does not count when another form of it was used.
    """
    stems = {stem for stem, _, leaf in map(_split, used) if leaf in _FORMS}
    found = []
    for checkpoint in (plan.sources.main, plan.sources.drafter):
        for name in sorted(checkpoint.names) if checkpoint else ():
            stem, _, leaf = _split(name)
            if name in used or (leaf in _FORMS and stem in stems):
                continue
            found.append(name)
            is_text = name.startswith(("model.language_model.", "lm_head."))
            if is_text and leaf not in _SIDE_FIELDS:
                assert checkpoint is not None
                raise CheckpointError(
                    f"{checkpoint.find(name)} has no place in the target; "
                    "the checkpoint is of another model"
                )
    return tuple(found)


def _split(name: str) -> tuple[str, str, str]:
    return name.rpartition(".")


def _conversion_digest(plan: ConversionPlan, options: ConvertOptions) -> bytes:
    """SHA-256 of all that decides on the bytes of the file: sources, layout, version."""
    counts = options.draft_counts.read_bytes() if options.draft_counts else b""
    texts = [[name, _hex(data)] for name, data in sorted(plan.resources.items())]
    shards = [checkpoint.fingerprint() for checkpoint in plan.sources.all()]
    layout = _hex(encode_directory(plan.directory))
    parts = [VERSION, options.framing, layout, _hex(counts), texts, shards]
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def _hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
