"""Every error that a caller of Ratoon can cause, as one tree.

An error is one sentence that says what is wrong and, where there is one, a hint that says what to do.
The command line prints both and exits with the class's `exit_status`: 2 where the request itself was
malformed, 1 where a well-formed request failed. Bugs of our own are `assert`s, not members of this tree.
"""

from typing import ClassVar


class RatoonError(Exception):
    """Base of all errors raised on purpose."""

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(RatoonError):
    """The caller asked for something that has no meaning: a bad option, parameter or script."""

    exit_status = 2


class InvalidParameterError(UsageError):
    """A setting or sampling parameter is out of its range."""


class CacheScriptError(UsageError):
    """A `ratoon cache` script is malformed or asks for the impossible."""


class UnknownModelError(UsageError):
    """A model was named that is neither a known name, nor a path, nor a repo id."""


class UnknownAdapterError(UsageError):
    """An adapter was named that is not loaded."""


class RequestError(UsageError):
    """A request can never be served as it stands."""


class EmptyPromptError(RequestError):
    """The prompt has no tokens."""


class PromptTooLongError(RequestError):
    """The prompt, or prompt and output together, exceed the model's context."""


class PoolTooSmallError(RequestError):
    """The request needs more KV blocks than the whole pool has."""


class GrammarError(RequestError):
    """The form asked for an answer is malformed, not supported, impossible, or too complex."""


class CheckpointError(RatoonError):
    """The files of a model or adapter are missing, damaged or not of a kind that Ratoon can run."""


class MissingCheckpointError(CheckpointError):
    """No file is where the model or adapter should be."""


class CorruptCheckpointError(CheckpointError):
    """A model file is truncated or contradicts itself."""


class UnsupportedModelError(CheckpointError):
    """The architecture, a setting of it, or a quantisation is not implemented."""


class AdapterBudgetError(RatoonError):
    """There is no room for another adapter."""


class TextError(RatoonError):
    """Text could not be turned into tokens."""


class ChatTemplateError(TextError):
    """The chat template is missing, broken, or refused the messages."""


class PullError(RatoonError):
    """A model could not be downloaded or stored."""


class EngineError(RatoonError):
    """A step failed; the requests in it are lost, the engine goes on."""


class LabError(RatoonError):
    """An experiment could not be run, or its run folder could not be read."""
