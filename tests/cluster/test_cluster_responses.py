"""The tests of one server, test_server_responses, through a gateway and two replicas."""

import pytest
from test_server_responses import *  # noqa: F403  # pytest collects them here as well

# The gateway passes bytes on; chat and stored responses are enough for `make test`.
pytestmark = pytest.mark.soak
