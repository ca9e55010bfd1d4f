"""Members of a contract or grade object, read with their types; unknown ones are refused."""

from collections.abc import Mapping
from typing import Any

from ninfer.errors import UsageError


class Parameters:
    """Reads the members of one object. Each method raises UsageError naming place and value."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        self._values = values
        self._read = {"kind"}

    def value(self, name: str, kinds: type | tuple[type, ...], *default: Any) -> Any:
        """A member of one of these types; null or left out it is the default, if there is one."""
        self._read.add(name)
        if self._values.get(name) is None and default:
            return default[0]
        value = self._values.get(name)
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        # A boolean is an int for Python, not for JSON.
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            words = " or ".join(kind.__name__ for kind in wanted)
            raise UsageError(f"{self.where}.{name}: {value!r} must be of type {words}")
        return value

    def text(self, name: str, *default: str) -> str:
        """A text that is not empty."""
        value: str = self.value(name, str, *default)
        if not value.strip() and value not in default:
            raise UsageError(f"{self.where}.{name}: must not be empty")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value: bool = self.value(name, bool, default)
        return value

    def count(self, name: str, *default: int | None) -> Any:
        """A whole number that is not negative."""
        value = self.value(name, int, *default)
        if value is not None and value < 0:
            raise UsageError(f"{self.where}.{name}: {value} must not be negative")
        return value

    def texts(self, name: str, *default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of texts, none of them empty; not an empty list unless that is the default."""
        found = self.value(name, list, *default)
        if not all(isinstance(item, str) and item.strip() for item in found):
            raise UsageError(f"{self.where}.{name}: {found!r} must hold texts that are not empty")
        if not found and () not in default:
            raise UsageError(f"{self.where}.{name}: must not be empty")
        return tuple(found)

    def rest(self, *names: str) -> dict[str, Any]:
        """These members as they are, where given, for another reader."""
        self._read.update(names)
        return {name: self._values[name] for name in names if name in self._values}

    def done(self) -> None:
        """Refuse members that nobody asked for."""
        for name in self._values:
            if name not in self._read:
                raise UsageError(f"{self.where}.{name}: unknown for kind {self._values['kind']}")
