"""A round of drafts, by hand: what stands, the newest token, rows and pages of the next block."""

from collections.abc import Iterator

import pytest
import torch

from ninfer.ops import accept_drafts, block_rows, dispatch


@pytest.fixture(params=["reference", "portable"], autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[None]:
    with dispatch.using(request.param, only={"accept_drafts", "block_rows"}):
        yield


# Triton 3.6's interpreter makes scalars of arrays for every range with a run-time bound.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


@pytest.mark.parametrize(
    ("tokens", "drafts", "want"),
    [
        ([5], [0], (1, 5)),
        ([5, 6, 7], [5, 6, 0], (3, 7)),
        # The last row has no draft behind it, whatever is stored there.
        ([5, 6, 7], [5, 6, 7], (3, 7)),
        ([5, 6, 7], [5, 9, 0], (2, 6)),
        # A right draft behind a wrong one was computed from wrong rows.
        ([5, 6, 7], [9, 6, 0], (1, 5)),
        ([5, -1, 7], [5, 6, 0], (2, -1)),
        ([-1, 6, 7], [5, 6, 0], (1, -1)),
        ([5, 6, -1], [4, 6, 0], (1, 5)),
        ([], [], (0, -1)),
    ],
)
def test_tokens_stand_up_to_the_first_that_was_not_foreseen(tokens, drafts, want):
    """Alone, and between two other sequences."""
    for before, behind in ((0, 0), (2, 3)):
        pad, end = [1] * before, [2] * behind
        offsets = torch.tensor([0, before, before + len(tokens), before + len(tokens) + behind])
        drawn = torch.tensor([*pad, *tokens, *end], dtype=torch.int64)
        tried = torch.tensor([*pad, *drafts, *end], dtype=torch.int64)
        counts, newest = accept_drafts(drawn, tried, offsets)
        assert (int(counts[1]), int(newest[1])) == want
        assert counts[[0, 2]].tolist() == [before, behind]


def test_a_long_sequence_is_followed_to_its_end():
    tokens = torch.arange(300)
    for wrong in (63, 64, 65, 200, 299):
        drafts = tokens.clone()
        drafts[wrong] += 1
        counts, newest = accept_drafts(tokens, drafts, torch.tensor([0, 300]))
        assert counts.tolist() == [wrong + 1] and newest.tolist() == [wrong]


def test_rows_of_blocks_stand_on_their_pages():
    table = torch.tensor([[7, 3, 0], [5, 9, 2]])
    drafts = torch.tensor([[11, -1], [12, 13]])
    rows = block_rows(torch.tensor([4, 6]), drafts, torch.tensor([2, 7]), table, 4)
    assert rows.tokens.tolist() == [4, 11, 0, 6, 12, 13]
    assert rows.positions.tolist() == [2, 3, 4, 7, 8, 9]
    assert rows.kv_slots.tolist() == [7 * 4 + 2, 7 * 4 + 3, 3 * 4, 9 * 4 + 3, 2 * 4, 2 * 4 + 1]
    assert rows.kv_lengths.tolist() == [5, 10]


def test_wrong_arguments_are_named():
    ids = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="accept_drafts: drafts is of shape"):
        accept_drafts(ids, ids[:2], ids)
    with pytest.raises(ValueError, match="accept_drafts: offsets is of shape"):
        accept_drafts(ids, ids, ids[:0])
    with pytest.raises(ValueError, match="block_rows: page_size is 0"):
        block_rows(ids, ids.unsqueeze(1), ids, ids.unsqueeze(1), 0)
