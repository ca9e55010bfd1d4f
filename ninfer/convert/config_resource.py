"""The resource that gives an artifact's sizes when its identity is not a registered one."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ninfer.artifact.directory import Identity


def config_document(
    identity: Identity, fields: Mapping[str, Any], resources: Mapping[str, bytes]
) -> bytes:
    """`model/config.json`: model id, sizes by Hugging Face names, SHA-256 of the text resources.

    The loader takes the sizes from here and checks the digests, because a container v2 file has
    neither sizes nor a checksum.
    """
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in resources.items()}
    document = {"model_id": identity.model_id, **fields, "frontend_sha256": digests}
    return json.dumps(document, indent=2).encode()
