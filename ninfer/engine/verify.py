"""Everything that can be checked of a file without running its model, as findings."""

from collections.abc import Iterator
from pathlib import Path

from ninfer.artifact import Artifact, open_artifact
from ninfer.artifact.options import VerifyOptions
from ninfer.artifact.packaged import locate
from ninfer.artifact.verify import Finding, Progress, check_published, check_samples
from ninfer.engine.loader import read_model
from ninfer.errors import ArtifactError, NInferError


def verify(path: Path, options: VerifyOptions, progress: Progress) -> Iterator[Finding]:
    """Check structure, model, stored words of sampled rows and hash; a finding for each.

    A file whose structure is broken has that one finding; every other check is made in any case.
    """
    path = locate(path)
    try:
        artifact = open_artifact(path)
    except ArtifactError as error:
        yield Finding("bad", "structure", str(error))
        return
    with artifact:
        objects = len(artifact.directory.entries)
        yield Finding("ok", "structure", f"framing v{artifact.framing}, {objects:,} objects")
        yield _model_finding(artifact)
        yield from check_samples(artifact, progress, rows=options.sample_rows, seed=options.seed)
    yield check_published(path, progress)


def _model_finding(artifact: Artifact) -> Finding:
    try:
        contents, frontend = read_model(artifact)
    except NInferError as error:
        return Finding("bad", "model", str(error))
    text = contents.config.text
    kind = "mixture of experts" if text.moe else "dense"
    return Finding(
        "ok",
        "model",
        f"{artifact.identity}: {kind}, {text.layers} layers, {len(contents.table):,} parameters, "
        f"{frontend.tokenizer.addressable:,} token ids",
    )
