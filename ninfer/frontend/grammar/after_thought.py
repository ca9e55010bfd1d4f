"""A constraint that begins when the thought before the answer has closed."""

from collections.abc import Sequence

from ninfer.frontend.grammar.matcher import masks_ahead
from ninfer.frontend.grammar.vocabulary import CLOSED, Vocabulary, thought_depth
from ninfer.request import TokenConstraint


class AfterThought:
    """`TokenConstraint` whose thought is free until its closing tag, as one id or spelled out.

    From there on `answer` rules. Inside the thought the turn can end only if nothing at all would
    satisfy `answer`, since an answer that never came is none.
    """

    def __init__(self, vocabulary: Vocabulary, answer: TokenConstraint) -> None:
        self._vocabulary = vocabulary
        self._answer = answer
        self._depths = [0]  # bytes of the tag that stand before each token of the thought
        self._answered = 0  # tokens that the answer has taken

    @property
    def is_finished(self) -> bool:
        """Whether a stop id was taken."""
        return self._answer.is_finished

    @property
    def may_stop(self) -> bool:
        """Whether a stop id may come next."""
        return self._answer.may_stop

    def allowed(self) -> bytes:
        """See `TokenConstraint.allowed`."""
        if self._depths[-1] == CLOSED or self._answer.is_finished:
            return self._answer.allowed()
        return self._vocabulary.thought_mask(self._depths[-1], self._answer.may_stop)

    def advance(self, token_id: int) -> bool:
        """See `TokenConstraint.advance`."""
        depth = self._depths[-1]
        if depth == CLOSED or self.is_finished or token_id in self._vocabulary.stop_ids:
            taken = self._answer.advance(token_id)
            self._answered += taken
            return taken
        if not 0 <= token_id < self._vocabulary.size:
            return False
        reached = thought_depth(depth, self._vocabulary.token_bytes(token_id))
        if reached is None:
            return False
        self._depths.append(reached)
        return True

    def rollback(self, count: int) -> None:
        """See `TokenConstraint.rollback`."""
        answered = min(count, self._answered)
        self._answer.rollback(answered)
        self._answered -= answered
        thought = count - answered
        assert 0 <= thought < len(self._depths)
        del self._depths[len(self._depths) - thought :]

    def allowed_ahead(self, drafts: Sequence[int]) -> list[bytes]:
        """See `TokenConstraint.allowed_ahead`."""
        return masks_ahead(self, drafts)

    def fork(self) -> "AfterThought":
        """An independent copy."""
        copy = AfterThought(self._vocabulary, self._answer.fork())
        copy._depths = self._depths.copy()
        copy._answered = self._answered
        return copy
