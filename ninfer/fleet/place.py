"""Where a deployment lies on its machine, as a path below the home folder."""

from typing import Final

from ninfer.fleet.contract import Contract
from ninfer.fleet.own import LOCAL

_FOLDER: Final = ".ninfer"


def is_own(contract: Contract) -> bool:
    """Whether the machine is the user's, where all that we put must go again with our mark."""
    return contract.provider == LOCAL or contract.provider.startswith("ssh:")


def folder_of(contract: Contract) -> str:
    """The folder of one deployment: that of the dead-man, or below the mark of an own machine."""
    return f"{_FOLDER}/machines/{contract.label}" if is_own(contract) else _FOLDER
