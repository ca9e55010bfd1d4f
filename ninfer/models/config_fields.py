"""Typed, required reads from a mapping with Hugging Face field names."""

from collections.abc import Mapping
from typing import Any, Final

from ninfer.errors import ConfigError

# No real size is larger.
_LARGEST: Final = 1 << 31
_LARGEST_NUMBER: Final = 1e30


class Fields:
    """One object of a configuration; every read raises ConfigError naming the whole path."""

    def __init__(self, values: Mapping[str, Any], path: str) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(f"{path} must be an object, not {values!r}")
        self._values = values
        self._path = path

    def integer(self, name: str) -> int:
        """A whole number from 1 to 2^31."""
        value = self._required(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _LARGEST:
            raise ConfigError(f"{self._path}.{name} must be a positive integer, not {value!r}")
        return value

    def number(self, name: str) -> float:
        """A positive finite number."""
        value = self._required(name)
        valid = isinstance(value, int | float) and not isinstance(value, bool)
        if not valid or not 0 < value < _LARGEST_NUMBER:
            raise ConfigError(f"{self._path}.{name} must be a positive number, not {value!r}")
        return float(value)

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, 0 or more."""
        value = self._required(name)
        if not isinstance(value, list) or not all(type(v) is int and v >= 0 for v in value):
            raise ConfigError(f"{self._path}.{name} must be a list of integers, not {value!r}")
        return tuple(value)

    def section(self, name: str) -> "Fields":
        """A member that is an object itself."""
        return Fields(self._required(name), f"{self._path}.{name}")

    def has(self, name: str) -> bool:
        """Whether the member is there and not null."""
        return self._values.get(name) is not None

    def _required(self, name: str) -> Any:
        if self._values.get(name) is None:
            raise ConfigError(f"{self._path}.{name} is missing; the configuration must give it")
        return self._values[name]
