"""What a scripted model writes to client libraries: products by a tool, objects, pictures."""

import re
from pathlib import Path

from PIL import Image

from ninfer.request import PreparedPrompt
from tests.server.scripted_calls import answer, call

KEY = "sk-of-the-test"
OBJECT = {"word": "tick", "count": 3}
SEEN = "I see [(1, 24, 32)]."
THOUGHT = "I have a tool for it."
LAST_THOUGHT = "Now I know."
_QUESTION = re.compile(r"Multiply (\d+) and (\d+)")
_SAID = re.compile(r"The product is (\d+)")
_RESULT = re.compile(r"<tool_response>\n(\d+)")


def drawn(folder: Path) -> Path:
    """A picture as a file of the folder, of the size that `SEEN` says in patches of 16."""
    path = folder / "picture.png"
    Image.new("RGB", (512, 384), (208, 32, 32)).save(path)
    return path


def library_author(prompt: PreparedPrompt) -> str:
    """The answer to the prompt's last question; with the tags only where a thought is open."""
    text = _next(prompt)
    return text if prompt.starts_in_reasoning else text.partition("</think>\n\n")[2]


def _next(prompt: PreparedPrompt) -> str:
    _, _, last = prompt.text.rpartition("<|im_start|>user\n")
    asked = _QUESTION.search(last)
    if "<tool_response>" in last:
        result = _RESULT.search(last)
        assert result, f"no number in {last}"
        return answer(f"The product is {result[1]}.", thought=LAST_THOUGHT)
    if asked:
        return answer("", call("multiply", a=asked[1], b=asked[2]), thought=THOUGHT)
    tools = [tool.get("function", tool)["name"] for tool in prompt.tools]
    if "Shape" in last and tools:
        return answer("", call(tools[0], word="tick", count="3"))
    if "Shape" in last:
        return answer('{"word": "tick", "count": 3}')
    if "Recall" in last:
        said = _SAID.findall(prompt.text)
        return answer(f"It was {said[-1]}.")
    if "Look" in last:
        return answer(f"I see {[one.grid for one in prompt.media]}.")
    return answer("Hello.")
