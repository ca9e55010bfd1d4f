"""The body of Responses requests; each member is honoured, harmless or refused."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from ninfer.server.members import Members
from ninfer.server.openai.fields import SamplingFields
from ninfer.server.openai.schema import MOST_TOP_LOGPROBS, TemplateFields
from ninfer.server.shapes import Items, ItemTools

# Member -> what to do instead.
REFUSED: Final = {
    "background": "send the request with stream set, or wait for it",
    "conversation": "use previous_response_id",
    "prompt": "send instructions and input",
}
_Key = Annotated[str, Field(max_length=64)]
_Value = Annotated[str, Field(max_length=512)]


class ReasoningFields(Members):
    """How much to think. There is no summary here: the thought itself is in the answer."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class TextFields(Members):
    """The form of the answer."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponsesBody(SamplingFields):
    """POST /v1/responses, and .../input_tokens. Items and tools have the OpenAI API's forms."""

    input: str | Items
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: ItemTools | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    reasoning: ReasoningFields | None = None
    text: TextFields | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    thinking_budget: Annotated[int, Field(ge=0)] | None = None
    chat_template_kwargs: TemplateFields | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    include: list[str] | None = None
    store: bool = True
    metadata: Annotated[dict[_Key, _Value], Field(max_length=16)] | None = None

    def includes(self, name: str) -> bool:
        """Whether a part of the answer was asked for that is left out otherwise."""
        return name in (self.include or ())
