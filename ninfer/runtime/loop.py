"""Runtime: one step is admit, plan, run, draw, commit; any number of sequences share a pass."""

import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from collections.abc import Sequence as Items
from functools import partial

import torch

from ninfer.errors import CapacityError, ContextError
from ninfer.log import get_logger
from ninfer.models.config import ModelConfig
from ninfer.models.qwen3_6 import TextWeights, VisionWeights
from ninfer.request import FinishReason, Media, MediaRun, SamplingParams
from ninfer.runtime.batch import Piece, build_batch, target_rows
from ninfer.runtime.cache_views import page_views
from ninfer.runtime.commit import advanced, begun, cut_at_end
from ninfer.runtime.config import RuntimeConfig, pages_for
from ninfer.runtime.deadlines import overdue
from ninfer.runtime.forks import Forks
from ninfer.runtime.isolation import isolated
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.load import RuntimeLoad, load_in_words, load_of
from ninfer.runtime.logprobs import needs_prompt_logprobs, score_prompt
from ninfer.runtime.media_encoding import MediaEncoding
from ninfer.runtime.model_runner import ModelRunner, Pass
from ninfer.runtime.prefix_reuse import PrefixOptions, PrefixReuse
from ninfer.runtime.requests import (
    Progress,
    SequenceRequest,
    check_prompt,
    check_sampling,
    new_sequence,
)
from ninfer.runtime.rounds import DecodeRounds, decode_rounds
from ninfer.runtime.sampler import Drawn, draw_pieces
from ninfer.runtime.scheduler import Scheduler
from ninfer.runtime.sequence import Sequence, Status
from ninfer.runtime.speculative import Speculation
from ninfer.runtime.state_slots import StateSlotPool

log = get_logger(__name__)


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._clock = clock
        self._sees = vision is not None
        self._runner = ModelRunner(weights, config, runtime, vision)
        self.pages = PagePool(runtime.pages)
        self.slots = StateSlotPool(runtime.state_slots, self._runner.caches)
        self.speculation = speculation
        caches = self._runner.caches
        layers = {f"text.{layer}": kv for layer, kv in caches.attention.items()}
        views = page_views({**layers, **(speculation.kv_layers if speculation else {})})
        self.prefixes = PrefixReuse(self.pages, caches, prefix, views) if prefix else None
        self.forks = Forks(self.pages, caches, views)
        self._scheduler = Scheduler(
            runtime,
            self.pages,
            self.slots,
            reclaim=self.prefixes.evict if self.prefixes else lambda pages: None,
            let_go=self.forks.drop,
            is_ready=self._is_ready,
            released=self._forget,
            commits_pages=bool(prefix and prefix.reuse_decoded),
        )
        self._media = MediaEncoding(self._runner.encode)
        self.rounds = decode_rounds(
            lambda batch, taps: self._runner.run(batch, taps),
            caches,
            config.text,
            runtime,
            speculation,
            self._scheduler.reserve,
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._scheduler.waiting or self._scheduler.running)

    @property
    def media_held(self) -> int:
        """Sequences that hold encoded media."""
        return len(self._media.held)

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
        """Queue a request; steps run it. Raises as `submit_many`."""
        (sequence,) = self.submit_many([request])
        return sequence

    def submit_many(self, requests: Items[SequenceRequest]) -> list[Sequence]:
        """Queue requests of one prompt, which is computed once; each gives what it would alone.

        Raises CapacityError, queuing none, when there is no place for all of them, UsageError for
        sampling parameters and PromptError for a prompt that would fail the pass of others too.
        """
        first, *others = requests
        check_prompt(first, self._config.text.vocab_rows, vision=self._sees)
        for other in others:
            assert (other.prompt, other.runs) == (first.prompt, first.runs)
            assert (other.media, other.prompt_logprobs) == (first.media, first.prompt_logprobs)
        for request in requests:
            assert 0 < request.max_tokens <= self.output_capacity(len(request.prompt))
            check_sampling(request.sampling, self._config.text.addressable)
        now = self._clock()
        sequences = [new_sequence(request, now) for request in requests]
        self._scheduler.add(*sequences)
        leader, *heirs = sequences
        self.forks.join(leader, heirs)
        return sequences

    def describe(self) -> str:
        """What it is at, in one line, for a log. May be asked from another thread."""
        return load_in_words(self._scheduler, self.pages, self.slots)

    def load(self) -> RuntimeLoad:
        """How busy it is. May be asked from another thread."""
        fetching = len(self.prefixes.wanted) if self.prefixes else 0
        return load_of(self._scheduler, self.pages, self.slots, fetching)

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence in whatever state it is; what it held is free afterwards."""
        if sequence.status is not Status.FINISHED:
            self._finish(sequence, FinishReason.CANCELLED)

    def step(self) -> list[Progress]:
        """One forward pass over every sequence that can use it, and what it produced.

        Sequences whose time is up end first, so that none overstays by more than one step.
        """
        ended = self._ended(self._overdue())
        if self.prefixes:
            self.prefixes.begin_step()
        for sequence in self._scheduler.admit():
            if not self.forks.take(sequence) and self.prefixes:
                self.prefixes.reuse(sequence)
            self._media.start(sequence)
        failed = self._media.advance(self._scheduler.running)
        if failed:
            ended += self._ended([Progress(failed[0], (), error=failed[1])])
        if self.rounds and (found := self._play(self.rounds)) is not None:
            return ended + self._ended(found)
        pieces = self._scheduler.plan()
        results = self._ended(self._pass(pieces)) if pieces else []
        if self.speculation and pieces and not self._goes_on_in_rounds():
            self._draft(self.speculation)
        if self.prefixes and not self._scheduler.running and not ended:
            self.prefixes.pause()
        return ended + [p for p in results if p.tokens or p.finish or p.error]

    def _play(self, rounds: DecodeRounds) -> list[Progress] | None:
        """What a round of all that run gave; None where a pass may follow instead."""
        try:
            found = rounds.advance(self._scheduler.running)
            return found if found or rounds.under_way else None
        except torch.OutOfMemoryError:
            # Some layers may have taken in rows and others not, so everyone starts anew.
            log.warning("no memory for a decode round: from now on steps run op by op")
            rounds.abandon()
            self.rounds = None
            for sequence in list(reversed(self._scheduler.running)):
                self._scheduler.preempt(sequence)
            return None

    def _goes_on_in_rounds(self) -> bool:
        """Whether nothing that is known now keeps the next step from being a round."""
        rounds, running = self.rounds, self._scheduler.running
        return rounds is not None and rounds.obstacle(running) is None

    def _is_ready(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence can start: what it takes over is in memory."""
        if self.prefixes is None or self.forks.holds(sequence):
            return True
        return self.prefixes.is_ready(sequence)

    def _overdue(self) -> list[Progress]:
        queues = (*self._scheduler.waiting, *self._scheduler.running)
        return list(overdue(queues, self._clock(), self._runtime.pending_timeout))

    def _ended(self, results: list[Progress]) -> list[Progress]:
        """The same results, the sequences that they end being out."""
        for progress in results:
            if progress.finish or progress.error:
                self._finish(progress.sequence, progress.finish)
        return results

    def _pass(self, pieces: list[Piece]) -> list[Progress]:
        """Run these pieces, draw, commit; what becomes of each."""
        start = time.perf_counter()
        try:
            batch = build_batch(pieces, self._runtime.device)
            passed = self._runner.run(batch, self.speculation.taps if self.speculation else ())
        except torch.OutOfMemoryError:
            return self._out_of_memory(pieces)
        drawn = draw_pieces(pieces, passed.logits, self._config.text.addressable)
        drawn = self._scored(pieces, drawn, passed)
        places = [piece.sequence.cached for piece in pieces]
        results = self._commit(pieces, drawn, batch.rows.state_slots)
        seconds = time.perf_counter() - start
        if self.speculation:
            rows = target_rows(pieces, places, [progress.error is None for progress in results])
            self.speculation.observe(rows, batch, passed.hidden, passed.taps)
            if all(piece.logits == piece.count for piece in pieces):
                self.speculation.observe_cost(sum(piece.count for piece in pieces), seconds)
        return results + self._inherit(pieces, passed, results)

    def _out_of_memory(self, pieces: list[Piece]) -> list[Progress]:
        """End the largest piece's sequence. The others may have lost their states in the middle of
        the pass, so they wait in front and do their work once more."""
        largest = max(pieces, key=lambda piece: piece.count)
        for piece in reversed(pieces):
            if piece is not largest:
                self._scheduler.preempt(piece.sequence)
        error = CapacityError(
            f"the device has no memory for a pass of {largest.count} rows of this request; ask for "
            "less, or start with a smaller --prefill-chunk or a larger --memory-margin"
        )
        return [Progress(largest.sequence, (), error=error)]

    def _scored(self, pieces: Items[Piece], drawn: Items[Drawn], passed: Pass) -> list[Drawn]:
        """Take in log-probabilities of prompts; where that fails, the failure is what was drawn."""
        results = list(drawn)
        if not any(needs_prompt_logprobs(piece.sequence) for piece in pieces):
            return results
        hidden = passed.hidden.split([piece.count for piece in pieces])
        for index, (piece, rows) in enumerate(zip(pieces, hidden, strict=True)):
            if needs_prompt_logprobs(piece.sequence):
                score = partial(
                    score_prompt, piece, rows, self._runner.head, self._config.text.addressable
                )
                failure = isolated("the log-probabilities of its prompt", score)
                if failure is not None:
                    results[index] = Drawn(error=failure)
        return results

    def _commit(
        self, pieces: Items[Piece], drawn: Items[Drawn], slots: torch.Tensor
    ) -> list[Progress]:
        """Take in what was drawn, and the rows that count for it."""
        cuts = [cut_at_end(p.sequence, d.tokens) for p, d in zip(pieces, drawn, strict=True)]
        # A held piece commits as many rows as it has tokens to show: the anchor and right drafts.
        kept = [len(c[0]) if p.held else p.count for p, c in zip(pieces, cuts, strict=True)]
        if self._runtime.window > 1:
            held = [rows if p.held else 0 for p, rows in zip(pieces, kept, strict=True)]
            pending = self._runner.caches.pending
            pending[slots] = torch.tensor(held, dtype=pending.dtype, device=pending.device)
        results = []
        for piece, found, cut, rows in zip(pieces, drawn, cuts, kept, strict=True):
            sequence = piece.sequence
            if found.error:
                results.append(Progress(sequence, (), error=found.error))
                continue
            self._scheduler.computed(sequence, rows)
            sequence.drafts = []
            if self.prefixes:
                self.prefixes.keep(sequence)
            results.append(advanced(sequence, *cut, found))
        return results

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
                firsts = [begun(heir, d) for heir, d in zip(heirs, drawn, strict=True)]
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
        if self.prefixes:
            self.prefixes.forget(sequence)
        sequence.finish = reason

    def _forget(self, sequence: Sequence) -> None:
        """Drop what is kept of a sequence besides pages and slot, which it has just lost."""
        self._media.release(sequence)
        if self.speculation:
            self.speculation.release(sequence)

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

    def check(self) -> None:
        """Assert that every page and slot is free or held by exactly its owners."""
        running = self._scheduler.running
        held = Counter(page for sequence in running for page in sequence.pages)
        held.update(self.forks.pages)
        self.forks.check([*running, *self._scheduler.waiting])
        if self.prefixes:
            self.prefixes.check(held)
            assert self.prefixes.wanted <= set(self._scheduler.waiting)
        else:
            for page in range(self.pages.capacity):
                assert self.pages.owners(page) == held[page], f"page {page}"
        slots = [sequence.state_slot for sequence in running]
        assert len(set(slots)) == len(slots)
        assert self.slots.free_count + len(slots) == self._runtime.state_slots
        assert all(pages_for(s.cached) <= len(s.pages) for s in running)
        assert self._media.held <= set(running), "media of a sequence that does not run"
        known = self.speculation.known if self.speculation else set()
        assert known <= set(running), "speculation keeps a sequence that does not run"
