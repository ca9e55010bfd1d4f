"""The tests of one server, test_server_responses, through a gateway and two replicas."""

from test_server_responses import *  # noqa: F403  # pytest collects them here as well
