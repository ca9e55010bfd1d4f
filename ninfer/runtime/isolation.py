"""Isolation: what goes wrong in one request's own parts becomes that request's error."""

from collections.abc import Callable
from typing import TypeVar

from ninfer.errors import NInferError, RequestFailedError
from ninfer.log import get_logger

log = get_logger(__name__)

T = TypeVar("T")


def isolated(part: str, work: Callable[[], T]) -> T | NInferError:
    """What `work` gives, or the error that ends the request whose `part` it is.

    For constraints, draws and media, which belong to one request: nothing that they raise may reach
    the others. Never around a pass, whose failure is everyone's.
    """
    try:
        return work()
    except NInferError as error:
        return error
    except Exception as error:
        log.exception("a request ends: %s failed", part)
        return RequestFailedError(
            f"{part} failed ({type(error).__name__}: {error}); other requests are not affected"
        )
