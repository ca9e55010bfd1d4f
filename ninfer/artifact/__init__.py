"""Artifact files: directory and layouts (no torch); reader and writer are loaded on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ninfer.artifact.describe import ArtifactSummary, describe
from ninfer.artifact.directory import Directory, Entry, Identity, ResourceEntry, TensorEntry
from ninfer.artifact.framing import ArtifactHeader, read_header
from ninfer.artifact.layouts import encoded_bytes, layout_of
from ninfer.artifact.model_map import Component, FileSpan, ModelMap, Part, Proposal, Use

if TYPE_CHECKING:
    from ninfer.artifact.reader import Artifact, open_artifact
    from ninfer.artifact.writer import (
        ArtifactWriter,
        ResourceSpec,
        TensorSpec,
        plan_directory,
        write_artifact,
    )

__all__ = [
    "Artifact",
    "ArtifactHeader",
    "ArtifactSummary",
    "ArtifactWriter",
    "Component",
    "Directory",
    "Entry",
    "FileSpan",
    "Identity",
    "ModelMap",
    "Part",
    "Proposal",
    "ResourceEntry",
    "ResourceSpec",
    "TensorEntry",
    "TensorSpec",
    "Use",
    "describe",
    "encoded_bytes",
    "layout_of",
    "open_artifact",
    "plan_directory",
    "read_header",
    "write_artifact",
]

_LAZY = {
    "Artifact": "reader",
    "open_artifact": "reader",
    "ArtifactWriter": "writer",
    "ResourceSpec": "writer",
    "TensorSpec": "writer",
    "plan_directory": "writer",
    "write_artifact": "writer",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ninfer.artifact.{_LAZY[name]}"), name)
