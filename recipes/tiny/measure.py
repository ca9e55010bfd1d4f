"""What storing costs: `python -m recipes.tiny.measure CHECKPOINT --name tiny`.

Held-out samples are read with the plain weights of a checkpoint and with what the artifact's
formats give back; the loss of answer tokens and the share of samples whose every answer token is
the likeliest one are written down for both. The second is a lower bound of what greedy decoding
gets right, since some tasks have many right answers.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional

from recipes.tiny.batch import pad
from recipes.tiny.build_suite import SUITE_TASKS, samples
from recipes.tiny.checkpoint import load_weights
from recipes.tiny.encode import Encoded, Encoder
from recipes.tiny.geometry import config_of
from recipes.tiny.make import RESULTS
from recipes.tiny.mixture import MIXTURES
from recipes.tiny.model import DemoModel

ITEMS: Final = 64
_CHUNK: Final = 64


def suite_tasks(name: str) -> list[str]:
    """Tasks of the held-out suite that checkpoint `name` has learnt."""
    learnt = MIXTURES[name]
    return [task for task in SUITE_TASKS if task.split("_4k")[0].split("_8k")[0] in learnt]


@torch.no_grad()
def measure(model: DemoModel, given: list[Encoded]) -> dict[str, float]:
    """Mean loss of answer tokens, and share of samples with every answer token likeliest."""
    loss = tokens = right = 0.0
    for sample in given:
        length = -(-len(sample.ids) // _CHUNK) * _CHUNK
        batch = pad([sample], length).to(model.lm_head.weight.device)
        hidden, _ = model.hidden(model.embed(batch), batch)
        logits = model.lm_head(hidden)[0, :-1].float()
        truth, wanted = batch.ids[0, 1:], batch.targets[0, 1:]
        loss += float(functional.cross_entropy(logits[wanted], truth[wanted], reduction="sum"))
        tokens += int(wanted.sum())
        right += bool((logits.argmax(-1) == truth)[wanted].all())
    return {"loss": round(loss / tokens, 5), "right": round(right / len(given), 4)}


def main() -> None:
    """Measure a checkpoint and write the table beside the other results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--name", choices=list(MIXTURES), required=True)
    parser.add_argument("--items", type=int, default=ITEMS, help="samples of each task")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    model = DemoModel(config_of(given.name), torch.float32).to(given.device).eval()
    model.load_state_dict(load_weights(given.checkpoint))
    encoder = Encoder()
    table: dict[str, Any] = {}
    for task in suite_tasks(given.name):
        chosen = [encoder.encode(sample) for sample in samples(task, given.items)]
        row = {}
        for key, stored in (("plain", False), ("stored", True)):
            model.imitate_storage(stored)
            row[key] = measure(model, chosen)
        table[task] = row
        print(task, json.dumps(row), flush=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{given.name}-storage.json"
    text = json.dumps({"items": given.items, "tasks": table}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
