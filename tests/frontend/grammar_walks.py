"""Walks through constraints: feeding text, drawing random allowed tokens, reading masks."""

import random

import numpy as np

from ninfer.frontend import Frontend
from ninfer.request import ConstraintSpec, PreparedPrompt, TokenConstraint

PLAIN = PreparedPrompt("", (), starts_in_reasoning=False)
THINKING = PreparedPrompt("", (), starts_in_reasoning=True)


def allowed_ids(constraint: TokenConstraint) -> list[int]:
    mask = np.frombuffer(constraint.allowed(), np.uint8)
    return np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist()


def accepts(frontend: Frontend, spec: ConstraintSpec, text: str, prompt=PLAIN) -> bool:
    """Whether `text`, spelled in bytes, may be a whole answer.

    Bytes rather than words: a constraint may prescribe the words of text that it forces.
    """
    constraint = frontend.new_constraint(prompt, spec)
    return takes(frontend, constraint, text) and constraint.may_stop


def takes(frontend: Frontend, constraint: TokenConstraint, text: str) -> bool:
    """Take `text` in any split that the masks allow, longest pieces first."""
    data = text.encode()
    while data:
        fitting = [
            (len(frontend.tokenizer.token_bytes(index)), index)
            for index in allowed_ids(constraint)
            if index not in frontend.stop_ids
            and data.startswith(frontend.tokenizer.token_bytes(index) or b"?!")
        ]
        if not fitting:
            return False
        size, index = max(fitting)
        assert constraint.advance(index)
        data = data[size:]
    return True


def random_answer(
    frontend: Frontend, constraint: TokenConstraint, rng: random.Random, limit: int, soft: int
) -> bytes | None:
    """Random allowed tokens up to a stop id; None if the limit comes first.

    After `soft` tokens shorter ends are preferred: stop ids, then closers.
    """
    closers = [frontend.tokenizer.encode(text)[0] for text in '"}],0']
    text = b""
    for count in range(limit):
        ids = allowed_ids(constraint)
        stops = [index for index in ids if index in frontend.stop_ids]
        index = rng.choice(ids)
        if count >= soft:
            preferred = stops or [closer for closer in closers if closer in ids]
            index = preferred[0] if preferred else index
        assert constraint.advance(index)
        if index in frontend.stop_ids:
            return text
        text += frontend.tokenizer.token_bytes(index)
    return None
