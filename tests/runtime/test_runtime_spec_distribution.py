"""Speculation does not bend the distribution: chi-square of sampled drafts against the target."""

import numpy as np
import pytest
import torch

from ninfer.request import SamplingParams
from ninfer.runtime.batch import Piece
from ninfer.runtime.sampler import draw_pieces
from ninfer.runtime.sequence import Sequence

VOCAB, SEQUENCES, TOKENS, WINDOW = 5, 500, 200, 3
# Quantile 0.999 of the chi-square law with 20 degrees of freedom: five laws of five outcomes.
LIMIT = 45.31

# What follows a token, by the target and by a drafter that knows it only roughly.
TARGET = torch.tensor(
    [
        [0.0, 1.0, -1.0, 0.5, -2.0],
        [2.0, 0.0, 0.0, -1.0, 1.0],
        [-1.5, 0.3, 0.2, 0.1, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [1.0, -2.0, 3.0, 0.5, -0.5],
    ]
)
DRAFTER = (TARGET + torch.tensor([1.0, -0.5, 0.0, 0.5, -1.0])).softmax(dim=1).numpy()


def chain(random: np.random.Generator, anchors: np.ndarray) -> np.ndarray:
    """Drafts [S, WINDOW], each drawn behind the draft before it."""
    columns = [anchors]
    for _ in range(WINDOW):
        edges = DRAFTER[columns[-1]].cumsum(axis=1)[:, :-1]
        columns.append((random.random((len(anchors), 1)) > edges).sum(axis=1))
    return np.stack(columns[1:], axis=1)


def block(random: np.random.Generator, anchors: np.ndarray) -> np.ndarray:
    """Drafts [S, WINDOW], all drawn behind the anchor without knowing of each other."""
    edges = DRAFTER[anchors].cumsum(axis=1)[:, None, :-1]
    return (random.random((len(anchors), WINDOW, 1)) > edges).sum(axis=2)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("propose", [chain, block])
def test_e1_sampled_drafts_follow_the_target(propose, seed: int) -> None:
    """E1: by chi-square, though the drafter is often wrong and sometimes sure of itself."""
    random = np.random.default_rng(seed)
    sequences = [
        Sequence([i % VOCAB], 1, SamplingParams(temperature=1.0, seed=seed * SEQUENCES + i), [], 0)
        for i in range(SEQUENCES)
    ]
    seen, accepted, rounds = np.zeros((VOCAB, VOCAB)), 0, 0
    while running := [one for one in sequences if one.generated < TOKENS]:
        drafts = propose(random, np.array([one.tokens[-1] for one in running]))
        behind: list[int] = []
        for one, row in zip(running, drafts.tolist(), strict=True):
            one.drafts = row
            behind += [one.tokens[-1], *row]
        pieces = [Piece(one, WINDOW + 1, WINDOW + 1, held=True) for one in running]
        for one, drawn in zip(running, draw_pieces(pieces, TARGET[behind], VOCAB), strict=True):
            accepted += len(drawn.tokens) - 1
            rounds += 1
            for token in drawn.tokens:
                seen[one.tokens[-1], token] += 1
                one.append(token)
    assert seen.sum() >= SEQUENCES * TOKENS
    assert 0.1 < accepted / (rounds * WINDOW) < 0.8
    expected = TARGET.double().softmax(dim=1).numpy() * seen.sum(axis=1, keepdims=True)
    assert ((seen - expected) ** 2 / expected).sum() < LIMIT
