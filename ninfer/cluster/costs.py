"""What one engine costs in seconds: measured figures, their file, and the fit that makes them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from ninfer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Costs:
    """One replica. A prompt takes the engine to itself; a step gives each sequence one token."""

    prompt_seconds: float  # of any prompt, beside its tokens
    token_seconds: float  # of each prompt token that is computed
    step_seconds: float  # of a decode step, beside its sequences
    sequence_seconds: float  # of each sequence in a step
    places: int  # sequences at once
    kv_tokens: int  # of running sequences and kept prefixes together
    source: str = ""  # what was measured, where and when

    def prefill(self, tokens: int) -> float:
        """Seconds for so many tokens that are not kept."""
        return self.prompt_seconds + self.token_seconds * tokens

    def step(self, sequences: int) -> float:
        """Seconds of a step of so many sequences."""
        return self.step_seconds + self.sequence_seconds * sequences

    def written(self) -> str:
        """The text of a file of costs."""
        return json.dumps(asdict(self), indent=1) + "\n"


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope of least squares, neither below 0; one point has no slope."""
    xs, ys = np.array(points, dtype=float).T
    if len(set(xs.tolist())) < 2:
        return max(0.0, float(ys.mean())), 0.0
    slope, intercept = np.polyfit(xs, ys, 1)
    if intercept < 0:
        return 0.0, float((xs * ys).sum() / (xs * xs).sum())
    if slope < 0:
        return float(ys.mean()), 0.0
    return float(intercept), float(slope)


def read_costs(path: Path) -> Costs:
    """A file of costs. Raises UsageError naming the file and the member."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--costs {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--costs {path}: {error}; make it by 'ninfer cluster measure'") from None
    known = {spec.name for spec in fields(Costs)}
    if not isinstance(value, dict) or set(value) - known or known - set(value) - {"source"}:
        names = ", ".join(sorted(known - {"source"}))
        raise UsageError(f"--costs {path}: must be an object of {names}; see 'ninfer cluster plan'")
    for name, number in value.items():
        whole = name in ("places", "kv_tokens")
        if name == "source":
            continue
        if not isinstance(number, int if whole else int | float) or number < whole:
            kind = "a whole number of 1 or more" if whole else "a number of 0 or more"
            raise UsageError(f"--costs {path}: {name} is {number!r}; must be {kind}")
    return Costs(**value)
