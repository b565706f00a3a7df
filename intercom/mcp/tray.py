"""Hold what waits for a model until it was put before it: messages, answers that came late, news of questions.

A message leaves the tray in a batch. Only when the batch is known to have been shown are its messages confirmed; a
batch that was not goes back, in order. A question is confirmed when it arrives, so that its asker waits for the answer
and not for the model to look; should this process end, the asker is told that nobody answers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from intercom.client import peertext
from intercom.client.aio import IncomingMessage
from intercom.limits import TOLD_CHARACTERS, TOLD_LEAST_CHARACTERS


class Item:
    """Be one thing that waits: a message, or a sentence of ours."""

    def __init__(self, message: IncomingMessage | None, text: str, hand: object = None) -> None:
        """Hold a message with the consumer that took it, or a sentence."""
        self.message = message
        self.hand = hand
        """Keeps the message unconfirmed as long as it lives."""
        self.since = time.monotonic()
        self.begin = 0
        """Where the part begins that was not shown yet."""
        self.bells = 0
        """How often the host was told that it waits."""
        self.was_out_of_date = False
        """Whether it was put before the model after its time, and said so."""
        self._text = text

    @property
    def is_question(self) -> bool:
        """Tell whether somebody waits for an answer to it."""
        return self.message is not None and self.message.expects_reply

    @property
    def is_step(self) -> bool:
        """Tell whether it is a step of a flow, which is to be reported."""
        return self.message is not None and self.message.flow is not None

    def told(self, room: int) -> peertext.Told:
        """Return it for a model, or the next part of it, in about ``room`` characters."""
        if self.message is None:
            return peertext.Told(self._text, len(self._text), True)
        self.was_out_of_date = self.message.is_out_of_date
        waited_ms = (time.monotonic() - self.since) * 1000
        return peertext.told(self.message, peertext.body_of(self.message), self.begin, room, waited_ms)


class Batch:
    """Hold items that are being put before a model, and their text."""

    def __init__(self, tray: Tray, items: list[Item], until: list[int], text: str) -> None:
        """Belong to a tray; ``until`` says for each item where its next part would begin, 0 for all shown."""
        self._tray = tray
        self._until = until
        self.items = items
        self.text = text

    @property
    def questions(self) -> int:
        """Return how many of them are questions."""
        return sum(item.is_question for item in self.items)

    def done(self) -> None:
        """Take notice that it was shown; twice is no error."""
        items, self.items = self.items, []
        rest = []
        for item, until in zip(items, self._until, strict=False):
            if until:
                item.begin = until
                rest.append(item)
            else:
                self._tray.was_shown(item)
        self._tray.put_back(rest)

    def back(self) -> None:
        """Let it wait again: nobody saw it."""
        items, self.items = self.items, []
        for item in items:
            item.bells = 0
        self._tray.put_back(items)


class Tray:
    """Hold items in the order in which they came.

    ``on_news`` is called when there is something new, ``on_shown`` for each item that was shown in full.
    """

    def __init__(self, on_news: Callable[[], object], on_shown: Callable[[Item], object]) -> None:
        self._items: deque[Item] = deque()
        self._on_news = on_news
        self.was_shown = on_shown

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Any:
        return iter(self._items)

    @property
    def questions(self) -> int:
        """Return how many questions wait."""
        return sum(item.is_question for item in self._items)

    def put(self, item: Item) -> None:
        """Let an item wait."""
        self._items.append(item)
        self._on_news()

    def put_back(self, items: list[Item]) -> None:
        """Let items wait again before all others, in their order."""
        self._items.extendleft(reversed(items))
        if items:
            self._on_news()

    def drop(self, message_id: str) -> Item | None:
        """Take out a message that need not be shown any more."""
        for item in self._items:
            if item.message is not None and item.message.id == message_id:
                self._items.remove(item)
                return item
        return None

    def forget_messages(self) -> None:
        """Take all messages out: they come again to whoever acts under the address then. Sentences stay."""
        self._items = deque(item for item in self._items if item.message is None)

    @property
    def has_step(self) -> bool:
        """Tell whether a step of a flow waits."""
        return any(item.is_step for item in self._items)

    def take_step(self, room: int = TOLD_CHARACTERS) -> Batch | None:
        """Return a batch with the first step of a flow that waits, before what came earlier."""
        for item in self._items:
            if item.is_step:
                self._items.remove(item)
                item.bells = 1
                return self.beside(item, room)
        return None

    def beside(self, item: Item, room: int) -> Batch:
        """Return a batch with one item that does not wait in its row."""
        told = item.told(room)
        return Batch(self, [item], [0 if told.is_all else told.until], told.text)

    def take(self, room: int = TOLD_CHARACTERS) -> Batch | None:
        """Return what waits and fits into ``room`` characters, at least the beginning of one; ``None`` for nothing."""
        items: list[Item] = []
        until: list[int] = []
        texts: list[str] = []
        while self._items:
            if items and room < TOLD_LEAST_CHARACTERS:
                break
            told = self._items[0].told(room)
            if items and not told.is_all:
                break  # it begins better in the next batch than in the little room that is left here
            items.append(self._items.popleft())
            items[-1].bells = 1  # whoever reads it needs none
            until.append(0 if told.is_all else told.until)
            texts.append(told.text)
            room -= len(told.text) + 2
            if not told.is_all:
                break
        return Batch(self, items, until, "\n\n".join(texts)) if items else None
