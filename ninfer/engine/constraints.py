"""What a generation's options ask of the form of the answer."""

from ninfer.engine.generation_options import GenerationOptions
from ninfer.errors import UsageError
from ninfer.json_text import parse_json
from ninfer.request import ConstraintSpec, JsonObjectSpec, JsonSchemaSpec


def constraint_spec(options: GenerationOptions) -> ConstraintSpec | None:
    """The constraint that a program gives, or that of `--json` or `--json-schema`; None without.

    Raises UsageError for a schema file that cannot be read or is not a JSON Schema object.
    """
    if options.program.constraint is not None:
        return options.program.constraint
    if options.json:
        return JsonObjectSpec()
    if options.json_schema is None:
        return None
    where = f"--json-schema {options.json_schema}"
    try:
        data = options.json_schema.read_bytes()
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}") from error
    schema = parse_json(data, where, UsageError)
    if not isinstance(schema, dict | bool):
        raise UsageError(f"{where}: must be a JSON object, not {type(schema).__name__}")
    return JsonSchemaSpec(schema)
