"""The text tasks by name."""

from collections.abc import Mapping
from typing import Final

from recipes.tiny.sample import Task
from recipes.tiny.tasks.arithmetic import arithmetic, arithmetic_direct
from recipes.tiny.tasks.chat import chat
from recipes.tiny.tasks.copy import copy
from recipes.tiny.tasks.languages import languages
from recipes.tiny.tasks.lists import lists
from recipes.tiny.tasks.needle import needle
from recipes.tiny.tasks.records import csv_records, json_object, jsonl, sql
from recipes.tiny.tasks.stories import stories
from recipes.tiny.tasks.tools import tools, tools_result
from recipes.tiny.tasks.translation import translation_de_en, translation_en_de

TEXT_TASKS: Final[Mapping[str, Task]] = {
    "arithmetic": arithmetic,
    "arithmetic_direct": arithmetic_direct,
    "copy": copy,
    "needle": needle,
    "lists": lists,
    "jsonl": jsonl,
    "csv": csv_records,
    "sql": sql,
    "json_object": json_object,
    "stories": stories,
    "translation_en_de": translation_en_de,
    "translation_de_en": translation_de_en,
    "tools": tools,
    "tools_result": tools_result,
    "languages": languages,
    "chat": chat,
}
