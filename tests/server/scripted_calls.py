"""What a scripted model writes: thoughts, texts and calls in its own format."""

from tests.server.serving import END


def call(name: str, **values: str) -> str:
    """One call; values are the texts of its parameters."""
    parameters = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items()
    )
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def answer(text: str = "", *calls: str, thought: str = "") -> str:
    """A whole answer to a prompt that opens a thought."""
    said = [piece for piece in (text, "\n".join(calls)) if piece]
    return f"{thought}\n</think>\n\n" + "\n\n".join(said) + END
