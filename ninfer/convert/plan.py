"""What a conversion will write: identity, sizes, objects in file order, and their sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ninfer.artifact import Directory, FileSpan, Identity, plan_directory
from ninfer.artifact import ResourceSpec as StoredResource
from ninfer.artifact import TensorSpec as StoredTensor
from ninfer.artifact.file_plan import FilePlan, plan_v2, plan_v3
from ninfer.artifact.framing import ID_BYTES
from ninfer.convert.checkpoint import Checkpoint, Sources
from ninfer.convert.config_resource import config_document
from ninfer.convert.options import ConvertOptions
from ninfer.convert.qwen3_6 import source_map
from ninfer.convert.source_config import read_resources, registered_config, source_fields
from ninfer.convert.source_map import ObjectSource
from ninfer.errors import UsageError
from ninfer.models import CONFIG_RESOURCE, ModelConfig, object_specs, resolve_config
from ninfer.models.config import model_config_from_fields
from ninfer.models.inventory import ObjectSpec, TensorSpec
from ninfer.models.qwen3_6 import FRONTEND_RESOURCES, recipe_for
from ninfer.models.qwen3_6.model_map import model_map_of
from ninfer.models.registry import is_registered

FRAMINGS: Final = {"v2": 2, "v3": 3}


@dataclass(frozen=True)
class ConversionPlan:
    """Everything that is known before a weight is read."""

    sources: Sources
    config: ModelConfig
    resources: Mapping[str, bytes]
    specs: list[ObjectSpec]
    directory: Directory
    source_map: Mapping[str, ObjectSource]


@dataclass(frozen=True, slots=True)
class PlannedArtifact:
    """A file that is not there yet, in the form that `ninfer.artifact.describe` reads."""

    path: Path
    plan: FilePlan
    framing: int

    @property
    def directory(self) -> Directory:
        """Identity and objects with their offsets."""
        return self.plan.directory

    @property
    def payload_offset(self) -> int:
        """File offset that object offsets count from."""
        return len(self.plan.files[0].head)

    @property
    def file_size(self) -> int:
        """Exact length of the file."""
        return self.payload_offset + self.plan.files[0].payload_bytes

    @property
    def files(self) -> tuple[FileSpan, ...]:
        """The one file."""
        return (FileSpan(None, self.plan.files[0].payload_bytes),)


def plan_conversion(options: ConvertOptions) -> ConversionPlan:
    """Open the checkpoints and lay out the artifact.

    Sizes and text files come from the unquantised checkpoint when there is one. Raises
    CheckpointError or ConfigError naming file and value.
    """
    assert options.source is not None
    base = _checkpoint(options.base_source)
    sources = Sources(Checkpoint(options.source), base, _checkpoint(options.drafter_source))
    folder = (base or sources.main).folder
    identity = options.identity()
    fields = source_fields(folder, sources.drafter)
    resources = read_resources(folder)
    config, document = _sizes(identity, fields, options)
    if document is not None and options.framing == "v2":
        resources[CONFIG_RESOURCE] = config_document(identity, document, resources)
    specs = wanted_objects(identity, config, options.framing)
    return ConversionPlan(
        sources=sources,
        config=config,
        resources=resources,
        specs=specs,
        directory=lay_out(identity, specs, {name: len(data) for name, data in resources.items()}),
        source_map=source_map(
            config,
            recipe_for(config, identity.weights_id),
            lambda name: any(c.find(name) is not None for c in sources.all()),
        ),
    )


def lay_out(
    identity: Identity, specs: Sequence[ObjectSpec], resource_bytes: Mapping[str, int]
) -> Directory:
    """The directory of an artifact whose resources have these lengths."""
    return plan_directory(
        identity,
        [
            StoredTensor(spec.name, spec.shape, spec.format)
            if isinstance(spec, TensorSpec)
            else StoredResource(spec.name, resource_bytes[spec.name])
            for spec in specs
        ],
    )


def dry_run(options: ConvertOptions) -> PlannedArtifact:
    """The exact layout of the artifact; without a source, of a registered target only.

    `resource_bytes` stands for all six text files together, whose own lengths do not change the
    total. Raises UsageError when neither it nor a source is given.
    """
    path = options.output or Path(f"{options.identity().model_id.rsplit('/', 1)[-1]}.ninfer")
    framing = FRAMINGS[options.framing]
    if options.source is not None and options.resource_bytes is None:
        plan = plan_conversion(options)
        return PlannedArtifact(path, file_plan(plan.directory, plan.config, options), framing)
    identity = options.identity()
    if options.resource_bytes is None:
        raise UsageError("--dry-run needs --resource-bytes N or --source DIR")
    if not is_registered(identity):
        raise UsageError(f"--target {identity}: is not registered; give --source DIR for its sizes")
    first, *others = FRONTEND_RESOURCES
    sizes = {first: options.resource_bytes - len(others), **dict.fromkeys(others, 1)}
    config = resolve_config(identity, None)
    directory = lay_out(identity, wanted_objects(identity, config, options.framing), sizes)
    return PlannedArtifact(path, file_plan(directory, config, options), framing)


def wanted_objects(identity: Identity, config: ModelConfig, framing: str) -> list[ObjectSpec]:
    """What the file holds. A v3 directory states the sizes, so it needs no resource for them."""
    specs = object_specs(identity, config)
    return [spec for spec in specs if framing == "v2" or spec.name != CONFIG_RESOURCE]


def file_plan(
    directory: Directory,
    config: ModelConfig,
    options: ConvertOptions,
    artifact_id: bytes = bytes(ID_BYTES),
) -> FilePlan:
    """The file's head and size in the framing asked for; `artifact_id` is written in v3 only.

    Raises UsageError for a v3 artifact of more than one file.
    """
    if options.framing == "v2":
        return plan_v2(directory)
    mapped = Directory(directory.identity, directory.entries, model_map_of(directory, config))
    name = options.output.name if options.output else ""
    plan = plan_v3(mapped, name, artifact_id=artifact_id)
    if len(plan.files) > 1:
        raise UsageError("--framing v3: the artifact needs part files; convert to v2 and split it")
    return plan


def _checkpoint(folder: Path | None) -> Checkpoint | None:
    return None if folder is None else Checkpoint(folder)


def _sizes(
    identity: Identity, fields: dict[str, Any], options: ConvertOptions
) -> tuple[ModelConfig, dict[str, Any] | None]:
    """The configuration, and the fields to store with it when the identity is not registered."""
    if is_registered(identity):
        for name in ("draft_head_rows", "generation"):
            if getattr(options, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag}: the target {identity} fixes it; leave it out")
        return registered_config(identity, fields), None
    document = {**fields, "draft_head_rows": options.draft_head_rows or 0}
    if options.generation is not None:
        document["generation"] = options.generation
    return model_config_from_fields(document), document
