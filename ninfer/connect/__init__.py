"""Configurations of other programs for a running server: what goes in, where, and how it stays."""

from ninfer.connect.clients import CLIENTS, Client, find_client
from ninfer.connect.dotenv import read_dotenv, set_dotenv
from ninfer.connect.edits import Edit, Match, ServedModel
from ninfer.connect.files import amend_file
from ninfer.connect.options import DEFAULT_URL, ConnectOptions, check_connect, check_provider

__all__ = [
    "CLIENTS",
    "DEFAULT_URL",
    "Client",
    "ConnectOptions",
    "Edit",
    "Match",
    "ServedModel",
    "amend_file",
    "check_connect",
    "check_provider",
    "find_client",
    "read_dotenv",
    "set_dotenv",
]
