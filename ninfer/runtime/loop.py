"""Runtime: one step is admit, plan, run, draw, commit; any number of sequences share a pass."""

import time
from collections import Counter, deque
from collections.abc import Generator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from ninfer.errors import ContextError, NInferError
from ninfer.models.config import ModelConfig
from ninfer.models.qwen3_6 import TextWeights, VisionWeights
from ninfer.request import (
    FinishReason,
    Media,
    MediaRun,
    SamplingParams,
    TokenConstraint,
    TokenForcer,
    TokenLogprob,
)
from ninfer.runtime.batch import Piece, build_batch, target_rows
from ninfer.runtime.config import RuntimeConfig, pages_for
from ninfer.runtime.forks import Forks
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.logprobs import needs_prompt_logprobs, score_prompt
from ninfer.runtime.loop_guard import LoopGuard
from ninfer.runtime.media import PromptMedia, place_media
from ninfer.runtime.model_runner import ModelRunner, Pass
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
    `Runtime.output_capacity`. `logprobs` asks for the log-probability of each generated token and
    of so many best ones, `prompt_logprobs` for those of the prompt, which then reuses no prefix.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    media: tuple[Media, ...] = ()
    runs: tuple[MediaRun, ...] = ()
    constraint: TokenConstraint | None = None
    forcer: TokenForcer | None = None
    loop_guard: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """New tokens of one sequence in one step. With `error` the sequence has ended by it."""

    sequence: Sequence
    tokens: tuple[int, ...]
    finish: FinishReason | None = None
    error: NInferError | None = None
    logprobs: tuple[TokenLogprob, ...] = ()  # one for each token if asked for


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
        self.prefixes = PrefixReuse(self.pages, self._runner.caches, prefix) if prefix else None
        drafter_layers = speculation.kv_layers if speculation else {}
        self.forks = Forks(self.pages, self._runner.caches, drafter_layers)
        self._scheduler = Scheduler(
            runtime,
            self.pages,
            self.slots,
            reclaim=self.prefixes.evict if self.prefixes else lambda pages: None,
            let_go=self.forks.drop,
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
        (sequence,) = self.submit_many([request])
        return sequence

    def submit_many(self, requests: Items[SequenceRequest]) -> list[Sequence]:
        """Queue requests of one prompt, which is computed once; each gives what it would alone.

        Raises CapacityError, queuing none, when there is no place for all of them.
        """
        first = requests[0]
        for other in requests[1:]:
            assert (other.prompt, other.runs) == (first.prompt, first.runs)
            assert (other.media, other.prompt_logprobs) == (first.media, first.prompt_logprobs)
        sequences = [self._sequence(request) for request in requests]
        self._scheduler.add(*sequences)
        leader, *heirs = sequences
        self.forks.join(leader, heirs)
        media = self._encoded(len(first.prompt), first.media, first.runs)
        for sequence in sequences:
            sequence.media = media
        return sequences

    def _sequence(self, request: SequenceRequest) -> Sequence:
        assert request.prompt
        assert 0 < request.max_tokens <= self.output_capacity(len(request.prompt))
        return Sequence(
            list(request.prompt),
            len(request.prompt),
            request.sampling,
            [],
            -1,
            max_tokens=request.max_tokens,
            stop_ids=request.stop_ids,
            spans=media_spans(request.runs, request.media),
            constraint=request.constraint,
            forcer=request.forcer,
            guard=LoopGuard() if request.loop_guard else None,
            top_logprobs=request.logprobs,
            prompt_top=request.prompt_logprobs,
        )

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence in whatever state it is; what it held is free afterwards."""
        if sequence.status is not Status.FINISHED:
            self._finish(sequence, FinishReason.CANCELLED)

    def step(self) -> list[Progress]:
        """One forward pass over every sequence that can use it, and what it produced."""
        for sequence in self._scheduler.admit():
            if not self.forks.take(sequence) and self.prefixes:
                self.prefixes.reuse(sequence)
        pieces = self._scheduler.plan()
        if not pieces:
            return []
        start = time.perf_counter()
        batch = build_batch(pieces, self._runtime.device)
        passed = self._runner.run(batch, self.speculation.taps if self.speculation else ())
        drawn = draw_pieces(pieces, passed.logits, self._config.text.addressable)
        drawn = self._scored(pieces, drawn, passed)
        places = [piece.sequence.cached for piece in pieces]
        results = [self._commit(p, d) for p, d in zip(pieces, drawn, strict=True)]
        seconds = time.perf_counter() - start
        if self.speculation:
            rows = target_rows(pieces, places, [progress.error is None for progress in results])
            self.speculation.observe(rows, batch, passed.hidden, passed.taps)
            if all(piece.logits == piece.count for piece in pieces):
                self.speculation.observe_cost(sum(piece.count for piece in pieces), seconds)
        results += self._inherit(pieces, passed, results)
        for progress in results:
            if progress.finish or progress.error:
                self._finish(progress.sequence, progress.finish)
        if self.speculation:
            self._draft(self.speculation)
        return [progress for progress in results if progress.tokens or progress.error]

    def _scored(self, pieces: Items[Piece], drawn: Items[Drawn], passed: Pass) -> list[Drawn]:
        """Take in log-probabilities of prompts; where that fails, the failure is what was drawn."""
        results, first = list(drawn), 0
        for index, piece in enumerate(pieces):
            if needs_prompt_logprobs(piece.sequence):
                rows = passed.hidden[first : first + piece.count]
                try:
                    score_prompt(piece, rows, self._runner.head, self._config.text.addressable)
                except NInferError as error:
                    results[index] = Drawn(error=error)
            first += piece.count
        return results

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
        return _advance(sequence, tokens, finish, drawn)

    def _inherit(
        self, pieces: Items[Piece], passed: Pass, results: Items[Progress]
    ) -> list[Progress]:
        """First tokens of sequences whose prompt another one has completed in this pass."""
        started: list[Progress] = []
        row = 0
        for piece, progress in zip(pieces, results, strict=True):
            leader = piece.sequence
            heirs = self.forks.heirs(leader) if piece.logits and not progress.error else []
            if heirs:
                for heir in heirs:
                    heir.match = leader.match
                    heir.prompt_logprobs = list(leader.prompt_logprobs)
                logits = passed.logits[row : row + 1].repeat(len(heirs), 1)
                rows = [Piece(heir, 1, 1) for heir in heirs]
                drawn = draw_pieces(rows, logits, self._config.text.addressable)
                firsts = [_begin(heir, d) for heir, d in zip(heirs, drawn, strict=True)]
                self.forks.open(leader, [p.sequence for p in firsts if not (p.finish or p.error)])
                started += firsts
            row += piece.logits
        return started

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
        self.forks.forget(sequence)
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
        held.update(self.forks.pages)
        self.forks.check([*running, *self._scheduler.waiting])
        if self.prefixes:
            self.prefixes.check(held)
        else:
            for page in range(self.pages.capacity):
                assert self.pages.owners(page) == held[page], f"page {page}"
        slots = [sequence.state_slot for sequence in running]
        assert len(set(slots)) == len(slots)
        assert self.slots.free_count + len(slots) == self._runtime.state_slots
        assert all(pages_for(s.cached) <= len(s.pages) for s in running)


def _begin(sequence: Sequence, drawn: Drawn) -> Progress:
    """Take the first token of a sequence that was not in the pass."""
    if drawn.error:
        return Progress(sequence, (), error=drawn.error)
    return _advance(sequence, *_cut(sequence, drawn.tokens), drawn)


def _advance(
    sequence: Sequence, tokens: tuple[int, ...], finish: FinishReason | None, drawn: Drawn
) -> Progress:
    """Add tokens, the first of those that were drawn, to a sequence."""
    for token in tokens:
        sequence.append(token)
    if sequence.forcer is not None and sequence.forcer.is_done:
        sequence.forcer = None
    return Progress(sequence, tokens, finish, logprobs=drawn.logprobs[: len(tokens)])


def _cut(
    sequence: Sequence, tokens: tuple[int, ...]
) -> tuple[tuple[int, ...], FinishReason | None]:
    """The tokens up to and with the first that ends the sequence, and why it ends.

    The loop guard takes in these tokens, so they have to be the sequence's next.
    """
    for index, token in enumerate(tokens):
        if token in sequence.stop_ids:
            return tokens[: index + 1], FinishReason.STOP_TOKEN
        if sequence.guard is not None and sequence.guard.advance(token):
            return tokens[: index + 1], FinishReason.LOOP_GUARD
        if index + 1 == sequence.remaining:
            return tokens[: index + 1], FinishReason.OUTPUT_LIMIT
    return tokens, None
