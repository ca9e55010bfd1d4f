"""Every examination, in the order in which one depends on another."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from ninfer.artifact.options import VerifyOptions
from ninfer.engine.verify import verify
from ninfer.errors import NInferError
from ninfer.selftest import cards, machine, packages
from ninfer.selftest.options import DoctorOptions
from ninfer.selftest.symptom import Symptom, bad

_ROWS: Final = 4


def examine(options: DoctorOptions, artifacts: Sequence[Path]) -> Iterator[Symptom]:
    """Look at everything; an examination that fails itself is a finding and stops no other."""
    found = cards.devices()
    steps: list[tuple[str, Callable[[], Iterator[Symptom]]]] = [
        ("python", packages.python),
        ("packages", packages.packages),
        ("driver", lambda: cards.driver_and_torch(found)),
        ("visible", lambda: cards.visible(found)),
        ("cards", lambda: cards.each_card(found)),
        ("processes", lambda: cards.processes(found)),
        ("compilers", packages.compilers),
        ("caches", machine.caches),
        ("kit", machine.kit),
        ("video", packages.decoders),
        ("disk", lambda: machine.disk(options.folder)),
        ("port", lambda: machine.port(options.host, options.port)),
        *((str(path), partial(artifact, path)) for path in artifacts),
    ]
    for name, step in steps:
        try:
            yield from step()
        except Exception as error:  # noqa: BLE001  # a report with a hole is worth more than none
            text = f"could not be looked at: {type(error).__name__}: {error}"
            yield bad(name, text, "report this, with --bundle FILE")


def artifact(path: Path) -> Iterator[Symptom]:
    """Whether a file is a usable artifact, as `ninfer verify` says it."""
    fix = "fetch or copy the file again; 'ninfer verify FILE' tells more"
    try:
        for finding in verify(path, VerifyOptions(sample_rows=_ROWS), lambda *_: None):
            mended = fix if finding.verdict == "bad" else ""
            yield Symptom(finding.verdict, f"{path.name} {finding.check}", finding.text, mended)
    except (NInferError, OSError) as error:
        yield bad(path.name, str(error), fix)
