"""Files of NAME=VALUE lines, read and amended but never executed; Open WebUI's lists in one."""

import re
from typing import Final

from ninfer.connect.edits import ServedModel
from ninfer.errors import ClientConfigError

_LINE: Final = re.compile(
    r"^(?P<head>[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*)"
    r"(?P<value>'[^'\r\n]*'|\"[^\"\r\n]*\"|(?:[^#\s][^\r\n]*?)?)"
    r"(?P<tail>[ \t]*(?:(?<=[= \t])#[^\r\n]*)?)\r?$",
    re.MULTILINE,
)
_URLS: Final = "OPENAI_API_BASE_URLS"
_KEYS: Final = "OPENAI_API_KEYS"


def amend_open_webui(text: str, server: ServedModel, where: str) -> str:
    """The file with the server among Open WebUI's connections; others keep their places.

    Keys go with addresses by their number, so both lists get the same length. Raises
    ClientConfigError when the file has more keys than addresses.
    """
    urls = _split(_value(text, _URLS) or _value(text, "OPENAI_API_BASE_URL"))
    keys = _split(_value(text, _KEYS) or _value(text, "OPENAI_API_KEY"))
    if len(keys) > len(urls) and urls:
        raise ClientConfigError(
            f"{where}: {_KEYS} has {len(keys)} entries for {len(urls)} of {_URLS}; make them match"
        )
    if not urls and keys:
        urls = ["https://api.openai.com/v1"]  # what Open WebUI takes a lone key for
    key = "unused" if server.needs_key is False else f"${{{server.key_env}}}"
    keys += [""] * (len(urls) - len(keys))
    if server.openai_url in urls:
        keys[urls.index(server.openai_url)] = key
    else:
        urls.append(server.openai_url)
        keys.append(key)
    text = _set(text, _URLS, ";".join(urls))
    return _set(text, _KEYS, ";".join(keys))


def read_dotenv(text: str) -> dict[str, str]:
    """Every name of a file and its value; the last line of a name wins.

    Values are data: quotes around one are taken off, a comment after a blank ends a bare one, and
    no `$`, backquote or backslash means anything.
    """
    return {line["name"]: _bare(line["value"]) for line in _LINE.finditer(text)}


def set_dotenv(text: str, name: str, value: str) -> str:
    """The text with the last line of that name changed, or with one more line."""
    return _set(text, name, value)


def _split(value: str | None) -> list[str]:
    return [part.strip() for part in value.split(";")] if value else []


def _value(text: str, name: str) -> str | None:
    """The value of the last line that sets the name, as python-dotenv reads it."""
    found = [line for line in _LINE.finditer(text) if line["name"] == name]
    return _bare(found[-1]["value"]) if found else None


def _bare(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _set(text: str, name: str, value: str) -> str:
    lines = [line for line in _LINE.finditer(text) if line["name"] == name]
    if not lines:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f'{text}{gap}{name}="{value}"\n'
    line = lines[-1]
    if _bare(line["value"]) == value:
        return text
    start, end = line.span("value")
    return f'{text[:start]}"{value}"{text[end:]}'
