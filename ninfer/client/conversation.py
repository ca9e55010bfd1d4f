"""A conversation of several turns, in the messages of the OpenAI protocol."""

import json
from pathlib import Path
from typing import Any

from ninfer.client.events import Answer
from ninfer.errors import UsageError

Message = dict[str, Any]


class Conversation:
    """System text, turns, and images that wait for the next turn.

    `messages` is what to send. A question is part of it from `ask` on and stays only when the
    answer has said something.
    """

    def __init__(self, system: str = "") -> None:
        self.system = system
        self._turns: list[Message] = []
        self._images: list[str] = []
        self._saved: Path | None = None

    @property
    def messages(self) -> list[Message]:
        """All messages in order, the system text first."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        return first + self._turns

    @property
    def pending_images(self) -> int:
        """Images that go with the next question."""
        return len(self._images)

    def attach(self, url: str) -> None:
        """Send this image, a URL, with the next question."""
        self._images.append(url)

    def drop_images(self) -> None:
        """Send no image with the next question."""
        self._images = []

    def ask(self, text: str) -> None:
        """Add a question, with the images that wait."""
        content: str | list[Message] = text
        if self._images:
            images = [{"type": "image_url", "image_url": {"url": url}} for url in self._images]
            content = [*images, {"type": "text", "text": text}]
        self._turns.append({"role": "user", "content": content})
        self._images = []

    def close_turn(self, answer: Answer) -> bool:
        """Keep the answer, whole or cut short; one that said nothing takes its question with it.

        Returns whether the turn was kept. Images of a dropped question wait for the next one.
        """
        if answer.text or answer.calls or answer.end is not None:
            self._turns.append(answer.message())
            return True
        content = self._turns.pop()["content"]
        if isinstance(content, list):
            self._images = [part["image_url"]["url"] for part in content if "image_url" in part]
        return False

    def reset(self) -> None:
        """Forget turns and waiting images; the system text stays."""
        self._turns, self._images = [], []

    def save(self, path: Path) -> None:
        """Write {"messages": [...]}, which `ninfer run --messages` reads.

        Replaces a file only if this conversation wrote it. Raises UsageError naming the file.
        """
        text = json.dumps({"messages": self.messages}, ensure_ascii=False, indent=2) + "\n"
        try:
            with path.open("w" if path == self._saved else "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise UsageError(f"{path}: exists; choose another name") from None
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        self._saved = path
