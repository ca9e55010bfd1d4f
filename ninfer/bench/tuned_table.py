"""Tables of launch sizes on disk: reading one, and adding entries to it one by one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ninfer.errors import ConfigError
from ninfer.json_text import parse_json
from ninfer.ops.tuning import Shape, Tile, parse_table, table_entry


def keeper(path: Path, source: str) -> Callable[[Shape, Tile], None]:
    """What puts a shape's sizes into the table at `path`, keeping its other entries.

    The file is whole after every call, so that a search that is cut short leaves what it found.
    Raises ConfigError for a file that is no such table.
    """
    content: dict[str, Any] = {"tiles": {}}
    if path.exists():
        content = parse_json(path.read_text(encoding="utf-8"), str(path), ConfigError)
        parse_table(content, str(path))

    def keep(shape: Shape, tile: Tile) -> None:
        content["tiles"][shape.key] = table_entry(tile, source)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)

    return keep
