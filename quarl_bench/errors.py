"""Every error a user can cause, as one tree.

Each message is one line that says what is wrong, where, and what to do about it.

    QuarlError                 anything the user can mend; exit code 2 in the CLI, 4 at pytest start-up
    |-- SpecError              an id, algorithm, environment, scheme or option that does not exist
    |-- MissingExtra           an optional dependency that is not installed, or in a version that does not do
    |-- PolicyError            a policy that cannot be represented or whose file is not what it claims to be
    |-- QuantizationError      numbers that cannot be quantized as asked
    |-- StoreError             an artefact or measurement that cannot be read, written or found
    |   `-- MissingBaseline    a policy that would have to be trained, and training was not allowed
    |-- DeploymentError        an artefact that cannot be built or run, or does not equal its golden pairs
    |-- BoardError             a board that cannot be reached, is taken, or lacks what a run needs
    |   `-- MissingBoard       a board that no board file describes
    `-- EngineError            Ray does not start or answer, or processes on it die over and over
"""


class QuarlError(Exception):
    """Base of all errors that end in one line to the user instead of a traceback."""


class SpecError(QuarlError):
    """A name or value outside what exists: algorithm, environment, scheme, recipe, claim, option."""


class MissingExtra(QuarlError):
    """An optional dependency is absent, or of a wrong version as `needed` says; `extra` is the extra that brings it.

    `advice` is what to do about it; by default, to install the extra.
    """

    def __init__(self, extra: str, what: str, needed: str = "an extra", advice: str = "") -> None:
        super().__init__(f"{what} needs {needed}: {advice or advise_extra(extra)}")
        self.extra, self.what, self.needed, self.advice = extra, what, needed, advice

    def __reduce__(self) -> tuple[type["MissingExtra"], tuple[str, str, str, str]]:
        # Between processes only what __init__ takes is passed on.
        return type(self), (self.extra, self.what, self.needed, self.advice)


class PolicyError(QuarlError):
    """A policy that has no portable form, or a policy file that contradicts itself."""


class QuantizationError(QuarlError):
    """NaN or overflowing values, a missing calibration, or a scheme a tensor cannot carry."""


class StoreError(QuarlError):
    """The store cannot be read or written."""


class MissingBaseline(StoreError):
    """No stored policy for this spec and training is not allowed; the message says how to train it."""


class DeploymentError(QuarlError):
    """Building or running an artefact failed, or its outputs differ from its golden pairs."""


class BoardError(QuarlError):
    """A board is silent, taken by another run, or lacks what a run needs."""


class MissingBoard(BoardError):
    """A board was named that no board file describes, or no board file was given."""

    def __init__(self, board: str, what: str) -> None:
        super().__init__(f"no board {board!r}: {what}")
        self.board, self.what = board, what

    def __reduce__(self) -> tuple[type["MissingBoard"], tuple[str, str]]:
        return type(self), (self.board, self.what)


class EngineError(QuarlError):
    """Ray cannot be started or reached, is too small, or lost a process that a run cannot do without."""


def advise_extra(extra: str) -> str:
    """What brings an extra: of an installed package its name, of a checkout that is merely on the path its folder."""
    import importlib.metadata
    from pathlib import Path

    checkout, place = Path(__file__).parents[1], "quarl_bench"
    try:
        importlib.metadata.version(place)  # then pip looks for no other quarl_bench, on an index or elsewhere
    except importlib.metadata.PackageNotFoundError:
        place = str(checkout) if (checkout / "pyproject.toml").exists() else place
    return f"pip install '{place}[{extra}]'"


def first_line(error: BaseException) -> str:
    """Of what an error of other people's code says; its type where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
