"""Runtime: run a sequence from prompt to last token, chunked prefill first, then decode."""

from collections.abc import Generator, Iterator
from collections.abc import Sequence as Items
from contextlib import ExitStack, contextmanager

from ninfer.errors import ContextError
from ninfer.models.config import ModelConfig
from ninfer.models.qwen3_6 import TextWeights, VisionWeights
from ninfer.request import Media, MediaRun, SamplingParams
from ninfer.runtime.batch import Piece, build_batch
from ninfer.runtime.config import RuntimeConfig, pages_for
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.media import PromptMedia, place_media
from ninfer.runtime.model_runner import ModelRunner
from ninfer.runtime.sampler import next_token
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.state_slots import StateSlotPool


class Runtime:
    """Owns caches and pools. One step is: cut a piece, run it, commit it, draw the next token."""

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

    def generate(
        self,
        prompt: Items[int],
        sampling: SamplingParams,
        max_tokens: int,
        media: Items[Media] = (),
        runs: Items[MediaRun] = (),
    ) -> Generator[int, None, None]:
        """Yield up to `max_tokens` token ids; closing the iterator frees pages and slot at once.

        `runs` say which prompt tokens stand for which rows of `media`. `max_tokens` must not exceed
        `output_capacity`. Raises CapacityError while pages or slots are taken and GenerationError
        on non-finite logits.
        """
        assert prompt and 0 < max_tokens <= self.output_capacity(len(prompt))
        with self._admitted(prompt, sampling, max_tokens) as sequence:
            sequence.media = self._encoded(len(prompt), media, runs)
            for _ in range(max_tokens):
                token = self._step(sequence)
                sequence.append(token)
                yield token

    def _encoded(
        self, length: int, media: Items[Media], runs: Items[MediaRun]
    ) -> PromptMedia | None:
        if not runs:
            return None
        # The same picture twice is encoded once.
        distinct = {item.digest: item for item in media}
        rows = {digest: self._runner.encode(item) for digest, item in distinct.items()}
        return place_media(length, runs, [rows[item.digest] for item in media])

    @contextmanager
    def _admitted(
        self, prompt: Items[int], sampling: SamplingParams, max_tokens: int
    ) -> Iterator[Sequence]:
        with ExitStack() as taken:
            pages = self.pages.allocate(pages_for(len(prompt) + max_tokens - 1))
            taken.callback(self.pages.free, pages)
            slot = self.slots.allocate()
            taken.callback(self.slots.free, slot)
            yield Sequence(list(prompt), len(prompt), sampling, pages, slot)

    def _step(self, sequence: Sequence) -> int:
        """Process all tokens that are not cached yet and draw the one after them."""
        while True:
            remaining = len(sequence.tokens) - sequence.cached
            count = min(remaining, self._runtime.prefill_chunk)
            piece = Piece(sequence, count, wants_logits=count == remaining)
            logits = self._runner.run(build_batch([piece], self._runtime.device))
            sequence.cached += count
            if piece.wants_logits:
                return next_token(sequence, logits, self._config.text.addressable)
