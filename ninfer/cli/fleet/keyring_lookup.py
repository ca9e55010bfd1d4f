"""The system's keyring by the package of that name, where it is installed."""

from ninfer.errors import UsageError
from ninfer.fleet.vault import SERVICE


def from_keyring(name: str) -> str | None:
    """A variable's secret; None without the package, without a keyring, or when it has none.

    Raises UsageError for a keyring that is there and cannot be asked, a locked one for example.
    """
    # Takes a tenth of a second, which commands whose secrets lie elsewhere do without.
    try:
        import keyring
        import keyring.errors
    except ModuleNotFoundError:
        return None
    try:
        value: str | None = keyring.get_password(SERVICE, name)
    except keyring.errors.NoKeyringError:
        return None
    except keyring.errors.KeyringError as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"the keyring cannot be asked ({text}); unlock it") from None
    return value
