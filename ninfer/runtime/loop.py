"""Runtime: one step is admit, plan, run, draw, commit; any number of sequences share a pass."""

from collections import deque
from collections.abc import Generator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from ninfer.errors import ContextError, NInferError
from ninfer.models.config import ModelConfig
from ninfer.models.qwen3_6 import TextWeights, VisionWeights
from ninfer.request import FinishReason, Media, MediaRun, SamplingParams
from ninfer.runtime.batch import Piece, build_batch
from ninfer.runtime.config import RuntimeConfig, pages_for
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.media import PromptMedia, place_media
from ninfer.runtime.model_runner import ModelRunner
from ninfer.runtime.sampler import Drawn, draw_pieces
from ninfer.runtime.scheduler import Scheduler
from ninfer.runtime.sequence import Sequence, Status
from ninfer.runtime.state_slots import StateSlotPool


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """What a caller asks of the runtime for one sequence.

    `runs` say which prompt tokens stand for which rows of `media`. `max_tokens` must not exceed
    `Runtime.output_capacity`.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    media: tuple[Media, ...] = ()
    runs: tuple[MediaRun, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """New tokens of one sequence in one step. With `error` the sequence has ended by it."""

    sequence: Sequence
    tokens: tuple[int, ...]
    finish: FinishReason | None = None
    error: NInferError | None = None


class Runtime:
    """Owns caches, pools and queues of one model. Not thread-safe: one thread calls it.

    What a sequence produces depends on its own request alone, not on the company it runs in, on
    how its prompt was cut, or on having been preempted.
    """

    def __init__(
        self,
        weights: TextWeights,
        config: ModelConfig,
        runtime: RuntimeConfig,
        vision: VisionWeights | None = None,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._runner = ModelRunner(weights, config, runtime, vision)
        self.pages = PagePool(runtime.pages)
        self.slots = StateSlotPool(runtime.state_slots, self._runner.caches)
        self._scheduler = Scheduler(runtime, self.pages, self.slots)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._scheduler.waiting or self._scheduler.running)

    def output_capacity(self, prompt_tokens: int) -> int:
        """Tokens that fit after a prompt: the last one emitted needs no place in the cache.

        Raises ContextError when the prompt alone is longer than the context.
        """
        limit = self._runtime.max_context
        if prompt_tokens > limit:
            raise ContextError(
                f"the prompt has {prompt_tokens} tokens, the context holds {limit}; "
                "shorten it or raise --max-context",
                prompt_tokens=prompt_tokens,
                limit=limit,
            )
        return limit - prompt_tokens + 1

    def submit(self, request: SequenceRequest) -> Sequence:
        """Queue a request; steps run it. Raises CapacityError when there is no place for it."""
        assert request.prompt
        assert 0 < request.max_tokens <= self.output_capacity(len(request.prompt))
        sequence = Sequence(
            list(request.prompt),
            len(request.prompt),
            request.sampling,
            [],
            -1,
            max_tokens=request.max_tokens,
            stop_ids=request.stop_ids,
        )
        self._scheduler.add(sequence)
        sequence.media = self._encoded(len(request.prompt), request.media, request.runs)
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence in whatever state it is; what it held is free afterwards."""
        if sequence.status is not Status.FINISHED:
            self._finish(sequence, FinishReason.CANCELLED)

    def step(self) -> list[Progress]:
        """One forward pass over every sequence that can use it, and what it produced."""
        for _ in self._scheduler.admit():
            pass
        pieces = self._scheduler.plan()
        if not pieces:
            return []
        logits = self._runner.run(build_batch(pieces, self._runtime.device))
        drawn = draw_pieces(pieces, logits, self._config.text.addressable)
        return [
            progress
            for piece, result in zip(pieces, drawn, strict=True)
            if (progress := self._commit(piece, result))
        ]

    def _commit(self, piece: Piece, drawn: Drawn) -> Progress | None:
        sequence = piece.sequence
        if drawn.error:
            self._finish(sequence, None)
            return Progress(sequence, (), error=drawn.error)
        if not piece.logits:
            sequence.cached += piece.count
            return None
        tokens, finish = _cut(sequence, drawn.tokens)
        # A held piece commits as many rows as it has tokens to show: the anchor and right drafts.
        rows = len(tokens) if piece.held else piece.count
        if piece.held:
            self._runner.caches.pending[sequence.state_slot] = rows
        sequence.cached += rows
        sequence.drafts = []
        for token in tokens:
            sequence.append(token)
        if finish:
            self._finish(sequence, finish)
        return Progress(sequence, tokens, finish)

    def _finish(self, sequence: Sequence, reason: FinishReason | None) -> None:
        self._scheduler.remove(sequence)
        sequence.finish = reason
        sequence.media = None

    def generate(
        self,
        prompt: Items[int],
        sampling: SamplingParams,
        max_tokens: int,
        media: Items[Media] = (),
        runs: Items[MediaRun] = (),
    ) -> Generator[int, None, None]:
        """Yield the tokens of one sequence, running steps until each comes; closing cancels it.

        Only for a runtime that nothing else uses at the time: other sequences' tokens are lost.
        Raises CapacityError when there is no place and GenerationError on non-finite logits.
        """
        request = SequenceRequest(
            tuple(prompt), sampling, max_tokens, media=tuple(media), runs=tuple(runs)
        )
        sequence = self.submit(request)
        ready: deque[int] = deque()
        try:
            while ready or sequence.status is not Status.FINISHED:
                while not ready:
                    for progress in self.step():
                        if progress.sequence is sequence:
                            if progress.error:
                                raise progress.error
                            ready.extend(progress.tokens)
                yield ready.popleft()
        finally:
            self.cancel(sequence)

    def _encoded(
        self, length: int, media: Items[Media], runs: Items[MediaRun]
    ) -> PromptMedia | None:
        if not runs:
            return None
        # The same picture twice is encoded once.
        distinct = {item.digest: item for item in media}
        rows = {digest: self._runner.encode(item) for digest, item in distinct.items()}
        return place_media(length, runs, [rows[item.digest] for item in media])

    def check(self) -> None:
        """Assert that every page and slot is free or held by exactly its owners."""
        running = self._scheduler.running
        held = [page for sequence in running for page in sequence.pages]
        for page in range(self.pages.capacity):
            assert self.pages.owners(page) == held.count(page), f"page {page}"
        slots = [sequence.state_slot for sequence in running]
        assert len(set(slots)) == len(slots)
        assert self.slots.free_count + len(slots) == self._runtime.state_slots
        assert all(pages_for(s.cached) <= len(s.pages) for s in running)


def _cut(
    sequence: Sequence, tokens: tuple[int, ...]
) -> tuple[tuple[int, ...], FinishReason | None]:
    """The tokens up to and with the first that ends the sequence, and why it ends."""
    for index, token in enumerate(tokens):
        if token in sequence.stop_ids:
            return tokens[: index + 1], FinishReason.STOP_TOKEN
        if index + 1 == sequence.remaining:
            return tokens[: index + 1], FinishReason.OUTPUT_LIMIT
    return tokens, None
