"""Let this process find the kernels of the installed kit, if it is for this card and stack."""

import logging
import os

import torch

from ninfer.errors import KitError
from ninfer.kits.home import CUDA, KIT, TRITON, kit_of
from ninfer.kits.install import check_match, installed
from ninfer.kits.stack import Stack
from ninfer.kits.triton_cache import relocate
from ninfer.ops import aot

_LOG = logging.getLogger(__name__)


def card() -> int | None:
    """Ten times the compute capability of the first card; None without one."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def use_kit() -> bool:
    """Point the compilers' caches at the kit; True when there is one and it fits.

    A kit that is damaged or does not match is left alone with a warning that says why: kernels are
    compiled instead. Folders that the user named in the environment stay as they are.
    """
    architecture = card()
    if architecture is None:
        return False
    folder = kit_of(architecture)
    if folder is None:
        return False
    try:
        kit = installed(folder)
        check_match(kit.manifest, Stack.here(), architecture, folder)
    except KitError as error:
        _LOG.warning("kit not used, kernels are compiled when first needed: %s", error)
        return False
    if KIT in os.environ:
        # One that was unpacked by hand, or moved.
        relocate(folder / TRITON)
    if "TRITON_CACHE_DIR" not in os.environ:
        aot.use_cache(folder / TRITON)
    os.environ.setdefault("NINFER_KERNELS", str(folder / CUDA))
    _LOG.info("kernels of kit %s", kit.manifest.id)
    return True
