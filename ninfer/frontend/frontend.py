"""The text side of a model: messages to prompts, and generated ids back to text."""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from ninfer.errors import ArtifactError, PromptError
from ninfer.frontend.chat_template import ChatTemplate
from ninfer.frontend.generation_config import GENERATION_CONFIG, sampling_defaults, stop_ids
from ninfer.frontend.grammar import ConstraintBuilder, Vocabulary
from ninfer.frontend.media import MediaLimits, MediaLoader, SourceRules
from ninfer.frontend.media.cache import MediaCache
from ninfer.frontend.output import OutputParser
from ninfer.frontend.placeholders import END, PADS, START
from ninfer.frontend.prompt import LiteralControlText, prepare_prompt
from ninfer.frontend.thinking_budget import ThinkingBudget
from ninfer.frontend.tokenizer import Tokenizer
from ninfer.frontend.tool_calls import declared_tools
from ninfer.log import get_logger
from ninfer.request import (
    ConstraintSpec,
    ContentPart,
    Conversation,
    Media,
    Message,
    PreparedPrompt,
    SamplingParams,
    StopRules,
    TemplateOptions,
    TokenConstraint,
    TokenForcer,
    ToolCallSpec,
)

_TOKENIZER: Final = "frontend/tokenizer.json"
_TOKENIZER_CONFIG: Final = "frontend/tokenizer_config.json"
_CHAT_TEMPLATE: Final = "frontend/chat_template.jinja"

_log = get_logger(__name__)


class Frontend:
    """Tokenizer, chat template and stop ids of one model. Shared by all requests; thread-safe.

    Without `media` images and videos are refused. `sampling` is what the model's files recommend.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        stop_ids: tuple[int, ...],
        media: MediaLoader | None = None,
        sampling: SamplingParams | None = None,
    ) -> None:
        self.tokenizer: Final = tokenizer
        self.template: Final = template
        self.stop_ids: Final = stop_ids
        self.media: Final = media
        self.sampling: Final = sampling or SamplingParams()
        missing = [text for text in (START, *PADS.values(), END) if text not in tokenizer.special]
        if media and missing:
            raise ArtifactError(f"tokenizer.json has no special token {missing[0]!r}")

    @classmethod
    def from_resources(
        cls,
        resources: Mapping[str, bytes],
        chat_template: str | None = None,
        *,
        vision: bool = False,
        limits: MediaLimits | None = None,
        media_cache: int = 0,
    ) -> "Frontend":
        """Build from an artifact's resources by name; `chat_template` replaces the artifact's.

        `vision` takes images and videos, within `limits`, for a model whose tower is loaded, and
        keeps `media_cache` bytes of those that may come again.
        Raises ArtifactError for a missing or broken resource, PromptError for a template that does
        not compile.
        """
        tokenizer = Tokenizer.from_bytes(
            _resource(resources, _TOKENIZER), _resource(resources, _TOKENIZER_CONFIG)
        )
        if chat_template is None:
            chat_template = _decoded(_resource(resources, _CHAT_TEMPLATE), _CHAT_TEMPLATE)
        generation = _resource(resources, GENERATION_CONFIG)
        media = None
        if vision:
            media = MediaLoader.from_resources(resources, limits, MediaCache(media_cache))
        return cls(
            tokenizer,
            ChatTemplate(chat_template),
            stop_ids(generation, tokenizer),
            media,
            sampling_defaults(generation),
        )

    @cached_property
    def reasoning_efforts(self) -> tuple[str, ...]:
        """The reasoning efforts that the chat template offers, weakest first."""
        return self.template.reasoning_efforts()

    def prepare(
        self,
        conversation: Conversation,
        *,
        literal_control_text: LiteralControlText = "text",
        sources: SourceRules | None = None,
    ) -> PreparedPrompt:
        """Load media, render and encode a normal conversation (see `parse_conversation`).

        `sources` says where media may come from; the default leaves local files alone. Raises
        PromptError for media that cannot be had, or for any without a vision tower, for a template
        option that this template does not have, and for messages that the template refuses. Warns
        in the log of a template that leaves out the text of the last user message.
        """
        self._check_options(conversation.template)
        media: tuple[Media, ...] = ()
        merge = 1
        if self.media is None:
            _refuse_media(conversation)
        else:
            media = self.media.load(conversation.messages, sources or SourceRules())
            merge = self.media.image.merge
        prompt = prepare_prompt(
            conversation, self.template, self.tokenizer, literal_control_text, media, merge
        )
        if not _holds_last_user_text(prompt.text, conversation):
            _log.warning("the chat template leaves out the text of the last user message")
        return prompt

    def prepare_text(self, prompt: str, options: TemplateOptions | None = None) -> PreparedPrompt:
        """A prompt of one user message."""
        message = Message("user", (ContentPart("text", prompt),))
        return self.prepare(Conversation((message,), template=options or TemplateOptions()))

    def new_output_parser(
        self,
        prompt: PreparedPrompt,
        stop: StopRules | None = None,
        *,
        raw: bool = False,
        constraint: ConstraintSpec | None = None,
    ) -> OutputParser:
        """The text state for one answer to `prompt`; it finds calls of the prompt's tools.

        `constraint` is what the answer has to follow. Raises RequestError for an empty stop string.
        """
        return OutputParser(
            self.tokenizer,
            starts_in_reasoning=prompt.starts_in_reasoning,
            stop=stop or StopRules(),
            hidden_ids=self.stop_ids,
            raw=raw,
            tools=prompt.tools,
            enforced_calls=isinstance(constraint, ToolCallSpec),
        )

    def new_constraint(self, prompt: PreparedPrompt, spec: ConstraintSpec) -> TokenConstraint:
        """The constraint state for one answer to `prompt`; a thought that it opens stays free.

        The first call takes about a second. Raises ConstraintError for a specification that cannot
        be enforced, GrammarBackendError if the grammar library fails on a sound one.
        """
        return self._constraints.build(spec, starts_in_reasoning=prompt.starts_in_reasoning)

    def new_thinking_budget(self, prompt: PreparedPrompt, budget: int) -> TokenForcer | None:
        """What closes the thought of `prompt` after `budget` tokens; None if it opens none."""
        if not prompt.starts_in_reasoning:
            return None
        return ThinkingBudget(self.tokenizer, budget, declared_tools(prompt.tools))

    @cached_property
    def _constraints(self) -> ConstraintBuilder:
        return ConstraintBuilder(Vocabulary(self.tokenizer, self.stop_ids))

    def _check_options(self, options: TemplateOptions) -> None:
        effort = options.reasoning_effort
        if effort is not None and effort not in self.reasoning_efforts:
            offered = ", ".join(self.reasoning_efforts) or "none at all"
            raise PromptError(
                f"reasoning effort {effort!r} is not in the chat template; it offers {offered}"
            )
        if options.preserve_thinking and not self.template.reads("preserve_thinking"):
            raise PromptError("preserve_thinking is not offered by the chat template; leave it out")


def _refuse_media(conversation: Conversation) -> None:
    for index, message in enumerate(conversation.messages):
        for part in message.content:
            if part.kind != "text":
                raise PromptError(
                    f"{part.place or f'messages[{index}]'} has a part of kind {part.kind}; the"
                    " vision tower is not loaded (--vision), so only text is understood"
                )


def _holds_last_user_text(rendered: str, conversation: Conversation) -> bool:
    users = [message for message in conversation.messages if message.role == "user"]
    # Templates trim texts.
    return all(part.text.strip() in rendered for message in users[-1:] for part in message.content)


def _resource(resources: Mapping[str, bytes], name: str) -> bytes:
    if name not in resources:
        raise ArtifactError(f"resource {name} is missing")
    return bytes(resources[name])


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ArtifactError(f"resource {name} is not UTF-8 at byte {error.start}") from None
