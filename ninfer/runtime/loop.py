"""Runtime: one step is admit, plan, run, draw, commit; any number of sequences share a pass."""

import time
from collections import Counter, deque
from collections.abc import Generator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from ninfer.errors import ContextError, NInferError
from ninfer.models.config import ModelConfig
from ninfer.models.qwen3_6 import TextWeights, VisionWeights
from ninfer.request import FinishReason, Media, MediaRun, SamplingParams, TokenConstraint
from ninfer.runtime.batch import Piece, build_batch, target_rows
from ninfer.runtime.config import RuntimeConfig, pages_for
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.media import PromptMedia, place_media
from ninfer.runtime.model_runner import ModelRunner
from ninfer.runtime.prefix_keys import media_spans
from ninfer.runtime.prefix_reuse import PrefixOptions, PrefixReuse
from ninfer.runtime.sampler import Drawn, draw_pieces
from ninfer.runtime.scheduler import Scheduler
from ninfer.runtime.sequence import Sequence, Status
from ninfer.runtime.speculative import Speculation
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
    constraint: TokenConstraint | None = None


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
        *,
        speculation: Speculation | None = None,
        prefix: PrefixOptions | None = None,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._runner = ModelRunner(weights, config, runtime, vision)
        self.pages = PagePool(runtime.pages)
        self.slots = StateSlotPool(runtime.state_slots, self._runner.caches)
        self.speculation = speculation
        self.prefixes = None
        if prefix:
            layers = speculation.kv_layers if speculation else {}
            self.prefixes = PrefixReuse(self.pages, self._runner.caches, prefix, layers)
        self._scheduler = Scheduler(
            runtime,
            self.pages,
            self.slots,
            reclaim=self.prefixes.evict if self.prefixes else lambda pages: None,
            commits_pages=bool(prefix and prefix.reuse_decoded),
            is_ready=self.prefixes.is_ready if self.prefixes else lambda sequence: True,
            released=speculation.release if speculation else lambda sequence: None,
        )

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
            spans=media_spans(request.runs, request.media),
            constraint=request.constraint,
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
        if self.prefixes:
            self.prefixes.begin_step()
        for sequence in self._scheduler.admit():
            if self.prefixes:
                self.prefixes.reuse(sequence)
        pieces = self._scheduler.plan()
        if not pieces:
            if self.prefixes:
                self.prefixes.pause()
            return []
        start = time.perf_counter()
        batch = build_batch(pieces, self._runtime.device)
        passed = self._runner.run(batch, self.speculation.taps if self.speculation else ())
        drawn = draw_pieces(pieces, passed.logits, self._config.text.addressable)
        places = [piece.sequence.cached for piece in pieces]
        results = [self._commit(p, d) for p, d in zip(pieces, drawn, strict=True)]
        seconds = time.perf_counter() - start
        if self.speculation:
            rows = target_rows(pieces, places, [progress.error is None for progress in results])
            self.speculation.observe(rows, batch, passed.hidden, passed.taps)
            if all(piece.logits == piece.count for piece in pieces):
                self.speculation.observe_cost(sum(piece.count for piece in pieces), seconds)
        for progress in results:
            if progress.finish or progress.error:
                self._finish(progress.sequence, progress.finish)
        if self.speculation:
            self._draft(self.speculation)
        return [progress for progress in results if progress.tokens or progress.error]

    def _commit(self, piece: Piece, drawn: Drawn) -> Progress:
        sequence = piece.sequence
        if drawn.error:
            return Progress(sequence, (), error=drawn.error)
        tokens, finish = _cut(sequence, drawn.tokens)
        # A held piece commits as many rows as it has tokens to show: the anchor and right drafts.
        rows = len(tokens) if piece.held else piece.count
        self._runner.caches.pending[sequence.state_slot] = rows if piece.held else 0
        sequence.cached += rows
        sequence.drafts = []
        if self.prefixes:
            self.prefixes.keep(sequence)
        for token in tokens:
            sequence.append(token)
        return Progress(sequence, tokens, finish)

    def _draft(self, speculation: Speculation) -> None:
        """Guess what comes behind the newest token of every sequence that decodes next."""
        sequences = [sequence for sequence in self._scheduler.running if sequence.decodes]
        most = [min(self._runtime.window, sequence.remaining) - 1 for sequence in sequences]
        counts = [self._scheduler.room(s, n) for s, n in zip(sequences, most, strict=True)]
        if not any(counts):
            return
        start = time.perf_counter()
        drafts = speculation.propose(sequences, counts)
        made = sum(map(len, drafts))
        if made:
            speculation.observe_draft_cost(made, time.perf_counter() - start)
        for sequence, found in zip(sequences, drafts, strict=True):
            sequence.drafts = found

    def _finish(self, sequence: Sequence, reason: FinishReason | None) -> None:
        self._scheduler.remove(sequence)
        if self.prefixes:
            self.prefixes.forget(sequence)
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
        held = Counter(page for sequence in running for page in sequence.pages)
        if self.prefixes:
            self.prefixes.check(held)
        else:
            for page in range(self.pages.capacity):
                assert self.pages.owners(page) == held[page], f"page {page}"
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
