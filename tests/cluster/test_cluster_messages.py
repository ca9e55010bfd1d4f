"""The tests of one server, test_server_messages, through a gateway and two replicas."""

from test_server_messages import *  # noqa: F403  # pytest collects them here as well
