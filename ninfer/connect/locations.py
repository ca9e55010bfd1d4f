"""Where each client keeps its configuration for a user."""

import sys
from collections.abc import Mapping
from pathlib import Path

Environment = Mapping[str, str]


def opencode(environment: Environment, home: Path) -> Path:
    """The file that OPENCODE_CONFIG names, else the user's own; one with comments if it exists."""
    named = environment.get("OPENCODE_CONFIG")
    if named:
        return Path(named)
    folder = _config_home(environment, home) / "opencode"
    commented = folder / "opencode.jsonc"
    return commented if commented.exists() else folder / "opencode.json"


def claude_code(environment: Environment, home: Path) -> Path:
    """The user's settings."""
    return Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "settings.json"


def codex(environment: Environment, home: Path) -> Path:
    """The user's settings."""
    return Path(environment.get("CODEX_HOME") or home / ".codex") / "config.toml"


def qwen_code(environment: Environment, home: Path) -> Path:
    """The user's settings."""
    return home / ".qwen" / "settings.json"


def zed(environment: Environment, home: Path) -> Path:
    """The user's settings; on Windows they lie with those of other programs."""
    if sys.platform == "win32":
        return Path(environment.get("APPDATA") or home / "AppData" / "Roaming") / "Zed" / _SETTINGS
    # Zed does not follow XDG_CONFIG_HOME on macOS.
    base = home / ".config" if sys.platform == "darwin" else _config_home(environment, home)
    return base / "zed" / _SETTINGS


def open_webui(environment: Environment, home: Path) -> Path:
    """The file of variables in the folder where Open WebUI or its compose file is started."""
    return Path(".env")


_SETTINGS = "settings.json"


def _config_home(environment: Environment, home: Path) -> Path:
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
