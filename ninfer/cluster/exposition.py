"""Prometheus pages of several replicas as one: each sample is marked with its replica."""

from collections.abc import Mapping


def joined(pages: Mapping[str, str]) -> str:
    """One page of all families, in the order in which they first come; each has one heading."""
    headings: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for replica, page in pages.items():
        family = ""
        for text in page.splitlines():
            if text.startswith("# "):
                family = text.split(" ", 3)[2]
                heading = headings.setdefault(family, [])
                samples.setdefault(family, [])
                if text not in heading and len(heading) < 2:
                    heading.append(text)
            elif text:
                samples.setdefault(family, []).append(_marked(text, replica))
    lines = [text for name in samples for text in (*headings.get(name, ()), *samples[name])]
    return "".join(f"{text}\n" for text in lines)


def _marked(sample: str, replica: str) -> str:
    """The sample with the label `replica`; names of replicas need no escapes."""
    name, brace, rest = sample.partition("{")
    label = f'replica="{replica}"'
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = sample.rpartition(" ")
    return f"{name}{{{label}}} {value}"
