"""The program `sky` of SkyPilot, in an environment of its own: called, never imported."""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any, Final

from ninfer.errors import OutcomeUnknownError, ProviderError, RefusedError, UsageError
from ninfer.fleet.box import Ran

INSTALL: Final = "uv tool install 'skypilot[aws]' (or gcp, runpod, lambda, ...), then sky check"
ASK_SECONDS: Final = 180.0
_SECRETS: Final = ("VAST_API_KEY", "NINFER_API_KEY")


class SkyCommand:
    """Runs `command`, words of a shell such as `sky` or `uvx --from skypilot sky`."""

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command) or ["sky"]

    def run(self, words: Sequence[str], seconds: float) -> Ran:
        """How a call ended, -1 past its time. Raises UsageError when there is no such program."""
        environ = {name: value for name, value in os.environ.items() if name not in _SECRETS}
        try:
            done = subprocess.run(
                [*self._words, *words],
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
            )
        except (FileNotFoundError, PermissionError):
            raise UsageError(
                f"{self._words[0]}: cannot be run; SkyPilot lives in an environment of its own: "
                f"{INSTALL}; NINFER_SKY names another program"
            ) from None
        except subprocess.TimeoutExpired:
            return Ran(-1, "", f"no end after {seconds:.0f} s")
        return Ran(done.returncode, done.stdout, done.stderr)

    def ask(self, *words: str) -> Any:
        """The JSON that a call prints. Raises ProviderError when it fails or prints anything else.

        An older `sky` puts words before its JSON; a line that begins it is looked for. No output is
        no answer, and never an empty list.
        """
        ran = self.run([*words, "--output", "json"], ASK_SECONDS)
        if ran.status != 0:
            raise ProviderError(f"sky {words[0]}: status {ran.status}: {said(ran)}")
        lines = ran.out.splitlines()
        for number, line in enumerate(lines):
            if line.startswith(("[", "{")):
                try:
                    return json.loads("\n".join(lines[number:]))
                except ValueError:
                    continue
        raise ProviderError(f"sky {words[0]}: no JSON in its answer: {ran.out[:100]!r}")

    def tell(self, *words: str) -> None:
        """A call that changes a machine; it may be repeated. Raises RefusedError when it fails."""
        ran = self.run(words, ASK_SECONDS * 5)
        if ran.status != 0:
            raise RefusedError(f"sky {words[0]}: status {ran.status}: {said(ran)}")

    def launch(self, words: Sequence[str], seconds: float) -> None:
        """The call that bills, once. Raises OutcomeUnknownError unless it ended well: its server
        goes on with what its client no longer waits for."""
        ran = self.run(words, seconds)
        if ran.status != 0:
            raise OutcomeUnknownError(f"sky launch: status {ran.status}: {said(ran)}")


def said(ran: Ran) -> str:
    """The last words of a call."""
    return " ".join((ran.err or ran.out).split())[-300:] or "no word"
