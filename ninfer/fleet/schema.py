"""Tables of the fleet's records."""

from typing import Final

VERSION: Final = 1

TABLES: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS contracts (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    provider TEXT NOT NULL,
    label TEXT NOT NULL,
    stage TEXT NOT NULL,
    machine_id TEXT NOT NULL DEFAULT '',
    offer TEXT NOT NULL DEFAULT '',
    machine TEXT NOT NULL DEFAULT '',
    host TEXT NOT NULL DEFAULT '',
    gpu TEXT NOT NULL DEFAULT '',
    image TEXT NOT NULL DEFAULT '',
    disk REAL NOT NULL DEFAULT 0,
    price REAL NOT NULL DEFAULT 0,
    disk_price REAL NOT NULL DEFAULT 0,
    first REAL NOT NULL DEFAULT 0,
    budget REAL NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    ends REAL NOT NULL DEFAULT 0,
    spent REAL NOT NULL DEFAULT 0,
    counted_until REAL NOT NULL,
    rate REAL NOT NULL DEFAULT 0,
    note TEXT NOT NULL DEFAULT '',
    rent_called REAL NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS one_open_name ON contracts (name) WHERE stage != 'closed';
CREATE UNIQUE INDEX IF NOT EXISTS one_row_each
    ON contracts (provider, machine_id) WHERE machine_id != '' AND stage != 'closed';
CREATE TABLE IF NOT EXISTS events (
    contract INTEGER NOT NULL REFERENCES contracts (key),
    at REAL NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS spend (
    contract INTEGER NOT NULL REFERENCES contracts (key),
    since REAL NOT NULL,
    until REAL NOT NULL,
    dollars REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS bad_hosts (
    provider TEXT NOT NULL,
    machine TEXT NOT NULL,
    category TEXT NOT NULL,
    reason TEXT NOT NULL,
    times INTEGER NOT NULL,
    last REAL NOT NULL,
    expires REAL NOT NULL,
    PRIMARY KEY (provider, machine, category)
);
CREATE TABLE IF NOT EXISTS provisions (
    contract INTEGER NOT NULL REFERENCES contracts (key),
    at REAL NOT NULL,
    record TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS clients (name TEXT PRIMARY KEY, file TEXT NOT NULL);
"""
