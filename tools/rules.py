"""The source rules as data: floors, forbidden imports, size limits and their exceptions."""

from typing import Final

# Packages and root modules, lowest floor first. Imports go down only.
FLOORS: Final[tuple[tuple[str, ...], ...]] = (
    ("errors", "log", "request", "cards", "version", "lazy"),
    ("formats", "options", "json_text"),
    ("artifact", "ops", "audit", "client", "connect"),
    ("models", "frontend"),
    ("runtime", "convert"),
    ("engine",),
    ("server", "bench", "evals", "kits", "fleet"),
    ("selftest", "cluster"),
    ("cli",),
)
FLOOR_OF: Final = {name: number for number, names in enumerate(FLOORS) for name in names}

# What every package may use: nouns, errors, the declaration of options, strict JSON.
_GROUND: Final = frozenset(FLOORS[0]) | {"options", "json_text"}

# Packages that may import less than everything below them.
ONLY: Final[dict[str, frozenset[str]]] = {
    "frontend": _GROUND,
    "audit": _GROUND,
    "client": _GROUND,
    "connect": _GROUND,
    "server": _GROUND | {"audit", "engine"},
    "evals": _GROUND | {"formats", "audit", "client", "connect"},
    "fleet": _GROUND | {"formats", "audit", "client", "connect"},
    "cluster": _GROUND | {"engine", "server"},
}
NEVER: Final[dict[str, frozenset[str]]] = {
    "runtime": frozenset({"frontend"}),
    "convert": frozenset({"frontend"}),
    "engine": frozenset({"convert"}),
}

# Modules of a package that certain users may import; everything else of it is private to them.
SURFACES: Final[dict[tuple[str, str], frozenset[str]]] = {
    (user, "ops"): frozenset({"ninfer", "ninfer.ops", "ninfer.ops.tensors"})
    for user in ("models", "runtime")
}

_HTTP: Final = ("aiohttp", "fastapi", "flask", "starlette", "uvicorn")

# Foreign top-level modules and the only packages that may import them.
OWNERS: Final[dict[str, frozenset[str]]] = {
    "torch": frozenset(
        {"formats", "artifact", "ops", "models", "runtime", "convert", "engine"}
        | {"bench", "selftest", "kits", "cluster"}
    ),
    "triton": frozenset({"ops"}),
    "cuda": frozenset({"ops"}),
    "ray": frozenset({"cluster"}),
    "tokenizers": frozenset({"frontend"}),
    "jinja2": frozenset({"frontend"}),
    "PIL": frozenset({"frontend"}),
    "av": frozenset({"frontend"}),
    "llguidance": frozenset({"frontend"}),
    "safetensors": frozenset({"convert"}),
    "huggingface_hub": frozenset({"artifact"}),
    "transformers": frozenset({"selftest"}),
    "rich": frozenset({"cli"}),
    "tomlkit": frozenset({"connect"}),
    "asyncssh": frozenset({"fleet"}),
    "keyring": frozenset({"cli"}),
    **{name: frozenset({"server", "cluster"}) for name in _HTTP},
}
# Packages whose floor keeps a standard module out as well: no JSON below the text.
WITHOUT_JSON: Final = frozenset({"formats", "ops", "models", "runtime"})

FILE_LIMIT: Final = 400
FUNCTION_LIMIT: Final = 60
KERNEL_LIMIT: Final = 120
LINE_BUDGET: Final = 95_000

# Path below ninfer/ -> why the file may pass FILE_LIMIT.
LONG_FILES: Final[dict[str, str]] = {}
# Path::function -> why the function may pass its limit.
LONG_FUNCTIONS: Final[dict[str, str]] = {
    "ops/delta_net/kernels.py::delta_net_rows": "its fifty arguments take fifty lines",
}
# Path below ninfer/ -> why it may import a foreign module that its package may not.
FOREIGN_EXCEPTIONS: Final[dict[str, str]] = {}

# Where an import may stand inside a function, besides lazy exports in an `__init__`.
LAZY_PACKAGES: Final = frozenset({"cli"})
LAZY_FILES: Final = frozenset({"ops/dispatch.py", "lazy.py"})
