"""The state of a grammar in one sequence: masks, tokens taken, and taking them back."""

from collections.abc import Sequence
from typing import Final

import llguidance

from ninfer.errors import ConstraintError, GenerationError, GrammarBackendError
from ninfer.frontend.grammar.json_schema import is_too_large
from ninfer.frontend.grammar.vocabulary import Vocabulary
from ninfer.request import TokenConstraint

# Masks are kept for this many positions behind the newest one: more than any block of drafts.
_KEPT: Final = 24


class GrammarConstraint:
    """`TokenConstraint` of a compiled grammar. Owns `matcher`, which stands at the beginning.

    Stop ids are never shown to the grammar library, so nothing reaches it after the end.
    """

    def __init__(self, vocabulary: Vocabulary, matcher: llguidance.LLMatcher, code: str) -> None:
        """`code` is the word of the ConstraintError for a grammar that proves too large."""
        self._vocabulary = vocabulary
        self._code = code
        self._matcher = matcher
        self._finished = False
        # Tokens taken, then those that were taken back: masks behind equal tokens are equal.
        self._path: list[int] = []
        self._count = 0
        self._masks: dict[int, bytes] = {}

    @property
    def is_finished(self) -> bool:
        """Whether a stop id was taken."""
        return self._finished

    @property
    def may_stop(self) -> bool:
        """Whether the text so far is a whole answer."""
        return not self._finished and self._matcher.is_accepting()

    def allowed(self) -> bytes:
        """See `TokenConstraint.allowed`."""
        assert not self._finished, "nothing follows the end"
        mask = self._mask()
        if not any(mask):
            raise GenerationError(
                f"the output constraint allows no token after {self._count} tokens of the answer"
            )
        return mask

    def advance(self, token_id: int) -> bool:
        """See `TokenConstraint.advance`."""
        if self._finished or not self._vocabulary.holds(self._mask(), token_id):
            return False
        if token_id in self._vocabulary.stop_ids:
            self._finished = True
            return True
        if not self._matcher.consume_token(token_id):
            self._fail()
        if self._path[self._count : self._count + 1] != [token_id]:
            self._path[self._count :] = [token_id]
            self._masks = {at: mask for at, mask in self._masks.items() if at <= self._count}
        self._masks.pop(self._count - _KEPT, None)
        self._count += 1
        return True

    def rollback(self, count: int) -> None:
        """See `TokenConstraint.rollback`."""
        if count and self._finished:
            self._finished = False
            count -= 1
        assert 0 <= count <= self._count
        if count and not self._matcher.rollback(count):
            self._fail()
        self._count -= count

    def allowed_ahead(self, drafts: Sequence[int]) -> list[bytes]:
        """See `TokenConstraint.allowed_ahead`."""
        return masks_ahead(self, drafts)

    def fork(self) -> "GrammarConstraint":
        """An independent copy."""
        copy = GrammarConstraint(self._vocabulary, self._matcher.deep_copy(), self._code)
        copy._finished = self._finished
        copy._path = self._path[: self._count]
        copy._count = self._count
        return copy

    def _mask(self) -> bytes:
        mask = self._masks.get(self._count)
        if mask is None:
            found = self._matcher.compute_bitmask()
            if self._matcher.is_error():
                self._fail()
            mask = self._vocabulary.answer_mask(found, self._matcher.is_accepting())
            self._masks[self._count] = mask
        return mask

    def _fail(self) -> None:
        place = f"after {self._count} tokens of the answer"
        raise failure(self._matcher.get_error(), place, self._code)


def failure(message: str, place: str, code: str) -> ConstraintError | GrammarBackendError:
    """What to raise for an error of the library: whether the request or the library is at fault."""
    reason = " ".join(message.split())[:200] or "no reason given"
    if is_too_large(reason):
        return ConstraintError(
            f"the output constraint is too large for the grammar library, {place}: {reason}; ask "
            "for fewer properties or alternatives",
            code=code,
        )
    return GrammarBackendError(f"the grammar library failed {place}: {reason}")


def masks_ahead(constraint: TokenConstraint, drafts: Sequence[int]) -> list[bytes]:
    """What `allowed_ahead` returns, by walking along the drafts and back.

    A draft behind which nothing may follow is an error only once it is the answer, so the walk
    ends there with an empty mask.
    """
    masks = [constraint.allowed()]
    taken = 0
    for draft in drafts:
        if not constraint.advance(draft):
            break
        taken += 1
        if constraint.is_finished:
            break
        try:
            masks.append(constraint.allowed())
        except GenerationError:
            masks.append(bytes(len(masks[0])))
            break
    constraint.rollback(taken)
    return masks
