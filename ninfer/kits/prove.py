"""The proof of a kit: two cold starts in processes of their own, without it and with it.

Each has empty caches. With the kit no kernel may be compiled, and the ids must be the same.
Launchers in C are counted apart: a kit cannot hold them.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from ninfer.errors import KitError
from ninfer.kits.home import KIT
from ninfer.kits.install import install
from ninfer.kits.options import StartOptions
from ninfer.kits.stack import Stack
from ninfer.kits.use import card

_LIMIT_S: Final = 3600
# What a start finds compiled kernels by.
_PLACES: Final = (KIT, "NINFER_KITS", "NINFER_KERNELS", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")


def prove(archive: Path, artifact: Path, options: StartOptions) -> dict[str, Any]:
    """Both starts, and `against`: every reason why they prove nothing; empty for a proof.

    Installs the kit into a folder of its own that is gone afterwards. Raises KitError for a kit
    that is refused or a start that fails.
    """
    with tempfile.TemporaryDirectory(prefix="ninfer-proof-") as made:
        folder = Path(made)
        kit = install(archive, folder / "kits", Stack.here(), card())
        bare = _start(folder / "bare", folder / "none", artifact, options)
        with_kit = _start(folder / "cold", folder / "kits", artifact, options)
    return {
        "kit": kit.manifest.id,
        "proven": not (against := objections(bare, with_kit)),
        "against": against,
        "without_kit": bare,
        "with_kit": with_kit,
    }


def objections(bare: dict[str, Any], with_kit: dict[str, Any]) -> list[str]:
    """Why two starts do not show that a kit makes compiling needless; empty when they do."""
    compiled, found = bare["compiled"], with_kit["compiled"]
    reasons = {
        "there is no card: nothing is compiled here with or without a kit": (
            bare["device"] == "cpu"
        ),
        "the start without a kit had one": bare["kit"],
        "the kit was not used; its start says why": not with_kit["kit"],
        "the start without a kit compiled no kernel, so the kit had nothing to save": (
            compiled["kernels"] == 0
        ),
        f"with the kit {found['kernels']} compilations of kernels were left": found["kernels"] > 0,
        "the ids of the two answers differ": bare["token_ids"] != with_kit["token_ids"],
    }
    return [reason for reason, holds in reasons.items() if holds]


def _start(caches: Path, kits: Path, artifact: Path, options: StartOptions) -> dict[str, Any]:
    """`ninfer kit start` in a process that finds nothing but what lies in these folders."""
    environment = {name: x for name, x in os.environ.items() if name not in _PLACES}
    environment |= {"NINFER_KITS": str(kits), "XDG_CACHE_HOME": str(caches / "cache")}
    # A kit brings its own folder of Triton's; without one it must not be the user's.
    if not kits.exists():
        environment["TRITON_CACHE_DIR"] = str(caches / "triton")
    command = [sys.executable, "-m", "ninfer", "kit", "start", str(artifact)]
    command += ["--device", options.device, "--backend", options.backend]
    command += ["--kv-dtype", options.kv_dtype, "--max-new", str(options.max_new)]
    command += ["--prompt", options.prompt]
    command += ["--spec", options.spec] if options.spec else []
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise KitError(f"{artifact}: its start did not end within {_LIMIT_S} s") from None
    sys.stderr.write(done.stderr)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise KitError(f"{artifact}: its start failed: {last}")
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values
