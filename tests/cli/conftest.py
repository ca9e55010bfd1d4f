"""The scripted server for the tests of this folder."""

from tests.client.scripted import scripted_server

__all__ = ["scripted_server"]
