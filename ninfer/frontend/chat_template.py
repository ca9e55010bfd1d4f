"""The model's jinja2 chat template: compiled once, rendered within bounds, asked what it offers."""

import threading
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from jinja2 import TemplateError

from ninfer.errors import PromptError
from ninfer.frontend.template_sandbox import BoundedEnvironment

# All values of `reasoning_effort` that a client may name, weakest first.
REASONING_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

# What evaluating a template's expressions can raise besides jinja2's own errors.
_FAULTS: Final = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AttributeError,
    NameError,
    RuntimeError,
)
# What compiling can raise besides: Python refuses what jinja2 made of the template.
_COMPILE_FAULTS: Final = (*_FAULTS, SyntaxError, MemoryError)


class _Refusal(TemplateError):
    """The template called `raise_exception`."""


class ChatTemplate:
    """A chat template in the dialect of Hugging Face's `apply_chat_template`.

    Offered beside jinja2: `raise_exception`, loop controls, and a `tojson` that keeps key order
    and all characters. Variables that are not given are undefined, never None. Rendering is
    thread-safe. Raises PromptError for a template that does not compile.
    """

    def __init__(self, source: str) -> None:
        self._environment = BoundedEnvironment()
        self._environment.globals["raise_exception"] = _refuse
        self._lock = threading.Lock()
        try:
            self._template, self._names = self._environment.load(source)
        except _COMPILE_FAULTS as error:
            raise PromptError(f"the chat template does not compile: {_line(error)}") from None

    def render(self, variables: Mapping[str, Any]) -> str:
        """The prompt text. Raises PromptError when the template refuses or fails."""
        try:
            with self._lock:
                return self._environment.render(self._template, variables)
        except _Refusal as error:
            raise PromptError(f"the chat template refuses the messages: {_line(error)}") from None
        except _FAULTS as error:
            raise PromptError(f"the chat template fails on the messages: {_line(error)}") from None

    def reads(self, variable: str) -> bool:
        """Whether the template mentions a variable, such as `preserve_thinking`."""
        return variable in self._names

    def reasoning_efforts(self) -> tuple[str, ...]:
        """The members of REASONING_EFFORTS that the template accepts; empty if it has no such
        switch. Found by rendering one user message with each."""
        if not self.reads("reasoning_effort"):
            return ()
        return tuple(effort for effort in REASONING_EFFORTS if self._accepts(effort))

    def _accepts(self, effort: str) -> bool:
        message = {"role": "user", "content": "-"}
        try:
            self.render(
                {
                    "messages": [message],
                    "tools": None,
                    "add_generation_prompt": True,
                    "enable_thinking": True,
                    "reasoning_effort": effort,
                }
            )
        except PromptError:
            return False
        return True


def _refuse(message: object) -> NoReturn:
    raise _Refusal(str(message))


def _line(error: BaseException) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    # The text of a syntax error counts lines of the Python that jinja2 made.
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    text = " ".join(words.split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
