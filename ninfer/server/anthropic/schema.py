"""The bodies of Messages requests; each member is honoured, harmless or refused."""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from ninfer.server.members import Members
from ninfer.server.shapes import AnthropicMessages, AnthropicTools

Text = Annotated[str, Field(min_length=1)]
# Accounting, hints of caching, and edits of a context that never grows here by itself.
HARMLESS: Final = frozenset(
    {
        "anthropic_beta",
        "betas",
        "cache_control",
        "context_management",
        "diagnostics",
        "inference_geo",
        "metadata",
        "service_tier",
        "speed",
        "user_profile_id",
    }
)
# Member -> what to do instead.
REFUSED: Final = {
    "container": "leave it out; code runs where the client runs it",
    "mcp_servers": "let the client connect to them and offer their tools",
}


class ThinkingFields(Members):
    """Whether and how long to think, and whether the thought is shown."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Members):
    """The form of the answer."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputFields(Members):
    """How much effort the answer is worth, and its form."""

    effort: str | None = None
    format: OutputFormat | None = None


class ChoiceFields(Members):
    """Whether and what to call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class CountBody(Members):
    """POST /v1/messages/count_tokens. Messages and tools have the forms of the Anthropic API."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    messages: AnthropicMessages
    system: str | list[Any] | None = None
    tools: AnthropicTools | None = None
    tool_choice: ChoiceFields | None = None
    thinking: ThinkingFields | None = None
    output_config: OutputFields | None = None
    output_format: OutputFormat | None = None


class MessagesBody(CountBody):
    """POST /v1/messages."""

    max_tokens: Annotated[int, Field(ge=0)]
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**30)] | None = None
    stop_sequences: list[Text] | None = None
