"""Edits of a TOML text; comments, order and layout of everything else stay."""

from collections.abc import MutableMapping, Sequence

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ninfer.connect.edits import Edit, path_text
from ninfer.errors import ClientConfigError


def amend(text: str, edits: Sequence[Edit], where: str) -> str:
    """The text with all edits made; equal to `text` when they hold already.

    The value None stands for a key that must not be there.

    Raises ClientConfigError naming `where` for text that is not TOML, or when a key on a path
    holds no table.
    """
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise ClientConfigError(
            f"{where}: not TOML: {error}; mend the file or move it away"
        ) from None
    for edit in edits:
        _set(document, edit, where)
    return tomlkit.dumps(document)


def _set(document: tomlkit.TOMLDocument, edit: Edit, where: str) -> None:
    table: MutableMapping[str, object] = document
    *outer, name = [step for step in edit.path if isinstance(step, str)]
    assert len(outer) + 1 == len(edit.path), "TOML paths are names only"
    for depth, step in enumerate(outer):
        inner = table.get(step)
        if inner is None:
            # A table that only holds tables has no header of its own.
            table[step] = tomlkit.table(is_super_table=depth + 1 < len(outer))
            inner = table[step]
        if not isinstance(inner, MutableMapping):
            raise ClientConfigError(
                f"{where}: {path_text(edit.path[: depth + 1])} is no table; mend it, or remove it "
                "and try again"
            )
        table = inner
    present = table.get(name)
    if edit.value is None:
        table.pop(name, None)
        return
    if present is not None and (edit.only_if_absent or present == edit.value):
        return
    table[name] = edit.value
