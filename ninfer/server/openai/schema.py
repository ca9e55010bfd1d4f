"""The bodies of Chat Completions requests; each member is honoured, harmless or refused."""

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from ninfer.server.members import Members
from ninfer.server.openai.fields import SamplingFields
from ninfer.server.shapes import ChatMessages, ChatTools

MOST_TOP_LOGPROBS: Final = 20
# Member -> what to do instead.
CHAT_REFUSED: Final = {
    "audio": "this model writes text",
    "chat_template": "start the server with --chat-template",
    "documents": "put them into a message",
    "echo": "put the text of the last message before the answer",
    "function_call": "use tool_choice",
    "functions": "use tools",
    "mm_processor_kwargs": "leave it out",
    "prediction": "leave it out",
    "web_search_options": "leave it out, or offer a function tool that searches",
}


class ReasoningFields(Members):
    """How long to think, in OpenRouter's words."""

    effort: str | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    enabled: bool | None = None
    exclude: bool | None = None


class ThinkingSwitch(Members):
    """Whether to think, as some other services have it."""

    type: str
    budget_tokens: Annotated[int, Field(ge=0)] | None = None


class TemplateFields(Members):
    """What a request may ask of the chat template; people write these by hand."""

    model_config = ConfigDict(extra="forbid")

    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    reasoning_effort: str | None = None
    thinking_budget: Annotated[int, Field(ge=0)] | None = None
    add_vision_id: bool | None = None


class ChatBody(SamplingFields):
    """POST /v1/chat/completions. Messages and tools have the forms of the OpenAI API."""

    messages: ChatMessages
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    tools: ChatTools | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    response_format: Any = None
    reasoning_effort: str | None = None
    reasoning: ReasoningFields | None = None
    thinking: ThinkingSwitch | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    thinking_budget: Annotated[int, Field(ge=0)] | None = None
    thinking_token_budget: Annotated[int, Field(ge=0)] | None = None
    chat_template_kwargs: TemplateFields | None = None
    include_reasoning: bool = True
    separate_reasoning: bool = True
    stream_reasoning: bool = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    modalities: list[str] | None = None

    @property
    def shows_reasoning(self) -> bool:
        """Whether the reply has the thought; it is written and counted all the same."""
        excluded = self.reasoning is not None and self.reasoning.exclude
        asked = self.include_reasoning and self.separate_reasoning and self.stream_reasoning
        return asked and not excluded
