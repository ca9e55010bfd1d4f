"""What clients reach at NINFER_BASE_URL now: the model's name, or that nobody answers."""

from dataclasses import dataclass
from typing import Final

import httpx

from ninfer.client import root_of
from ninfer.client.cards import parse_models
from ninfer.errors import UsageError

# It is an address of this machine as a rule: a tunnel answers at once, or nobody does.
_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Served:
    """`model` is the served model's id, empty when `problem` says why there is none."""

    url: str
    model: str = ""
    problem: str = ""

    def __str__(self) -> str:
        if self.model:
            return f"{self.url} serves {self.model}"
        return f"{self.url}: {self.problem}; 'ninfer tunnel' leads it to a machine"


def served_at(url: str, key: str) -> Served:
    """Ask for the models at an address; every failure is part of the answer."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx.get(
            f"{root_of(url)}/v1/models", headers=headers, timeout=_SECONDS, trust_env=False
        )
        names = [card.id for card in parse_models(answer.json())]
    except (httpx.HTTPError, UsageError):
        return Served(url, problem="nobody answers")
    except ValueError:
        return Served(url, problem="no server of the OpenAI protocol")
    if answer.status_code != 200:
        return Served(url, problem=f"answers {answer.status_code}")
    return Served(url, names[0]) if names else Served(url, problem="lists no model")
