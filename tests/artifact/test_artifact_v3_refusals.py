"""Every way a v3 directory can be wrong: the exact kind of error, and a message that names it."""

import copy

import artifact_files as files
import artifact_v3_files as v3
import pytest

from ninfer.artifact import open_artifact, read_header
from ninfer.errors import ArtifactError, DirectoryError, FramingError

OBJECTS = v3.SMALL["objects"]
PIECE = {"object": "b", "range": [0, 2]}
USE = {"parameter": "text/token_embedding", "input": "x", "activation_policy": "A16Only",
       "auxiliaries": {}}  # fmt: skip


def bound(value: object) -> dict:
    return v3.root(bindings={"text/token_embedding": value})


def used(**members: object) -> dict:
    use = {key: value for key, value in (USE | members).items() if value is not ...}
    return v3.root(uses=[use])


def component(**members: object) -> dict:
    whole = copy.deepcopy(v3.SMALL["components"]["text"]) | members
    return v3.root(
        components={"text": {key: value for key, value in whole.items() if value is not ...}}
    )


def with_part(path: object, size: object = 10) -> dict:
    return v3.root(files=[*v3.SMALL["files"], {"path": path, "payload_bytes": size}])


DIVISOR = {"activation_input_divisor": {"object": "b"}}
CASES = {
    "root extra": (v3.root(version=3), "directory root has an unknown member 'version'"),
    "root v2": (files.SMALL, "directory root lacks the member 'components'"),
    "no bindings": (v3.root(bindings=...), "directory root lacks the member 'bindings'"),
    "no uses": (v3.root(uses=...), "directory root lacks the member 'uses'"),
    "no files": (v3.root(files=...), "directory root lacks the member 'files'"),
    "objects empty": (v3.root(objects=[]), "objects must be a non-empty array"),
    "name for id": (v3.tensor(id=..., name="b"), r"objects\[1\]: id must be .* got null"),
    "id null character": (v3.tensor(id="a\0"), r"objects\[1\]: id holds a null character"),
    "id surrogate": (v3.tensor(id="\ud800"), r"objects\[1\]: id holds a lone surrogate"),
    "id twice": (v3.tensor(id="a"), "object 'a' is in the directory twice"),
    "kind": (v3.tensor(kind="matrix"), "object 'b': kind must be .* got 'matrix'"),
    "format of v2": (v3.tensor(format="BF16"), "object 'b': format 'BF16' is unknown; known: bf16"),
    "format null": (v3.tensor(format=None), "object 'b': format must be .* got null"),
    "layout of v2": (
        v3.tensor(layout="contiguous-le-v1"), "object 'b': layout 'contiguous-le-v1' is unknown",
    ),
    "layout of another": (
        v3.tensor(layout="row_scale_v1"), "object 'b': layout row-scale-v1 does not store BF16",
    ),
    "encoding of v2": (
        v3.root(objects=[OBJECTS[0] | {"encoding": "raw-bytes-v1"}, OBJECTS[1]]),
        "object 'a': unknown encoding 'raw-bytes-v1'; known: raw_bytes_v1",
    ),
    "bytes": (v3.tensor(bytes=6), r"object 'b': bytes is 6, but BF16 of shape \[2, 2\] takes 8"),
    "overlap": (
        v3.root(objects=[OBJECTS[0] | {"bytes": 257}, OBJECTS[1]]), "object 'b': offset 256 over",
    ),
    "beyond the end": (v3.tensor(offset=512), "object 'b': ends at 520, beyond the 264 payload"),
    "components array": (v3.root(components=[]), "components must be a JSON object, got an array"),
    "no text": (v3.root(components={"mtp": {"config": {}}}), "lacks the component 'text'"),
    "config missing": (component(config=...), "component 'text' lacks the member 'config'"),
    "config array": (component(config=[]), "component 'text': config must be a JSON object"),
    "config surrogate": (
        component(config={"a": ["\ud800"]}), "component 'text': config holds a lone surrogate",
    ),
    "component extra": (component(size=1), "component 'text' has an unknown member 'size'"),
    "proposal elsewhere": (
        v3.root(components={"text": {"config": {}},
                            "mtp": {"config": {}, "proposal": {"domain": "full"}}}),
        "component 'mtp' has an unknown member 'proposal'",
    ),
    "proposal domain": (component(proposal={"domain": "some"}), "must be 'full' or 'indexed'"),
    "proposal rows": (
        component(proposal={"domain": "indexed", "rows": 0}), "proposal: rows must lie in 1..",
    ),
    "proposal full with rows": (
        component(proposal={"domain": "full", "rows": 5}), "proposal has an unknown member 'rows'",
    ),
    "target unknown": (component(target="base"), "target 'base' is not a component of this file"),
    "resource unknown": (
        component(resources={"tokenizer": "c"}), "resource 'tokenizer' names 'c', not a resource",
    ),
    "resource is a tensor": (
        component(resources={"tokenizer": "b"}), "resource 'tokenizer' names 'b', not a resource",
    ),
    "bindings array": (v3.root(bindings=[]), "bindings must be a JSON object, got an array"),
    "binding name empty": (v3.root(bindings={"": PIECE}), "a parameter name must be a non-empty"),
    "binding text": (bound("b"), "binding 'text/token_embedding' must be a JSON object"),
    "binding empty": (bound({}), "binding 'text/token_embedding' lacks the member 'parts'"),
    "binding both": (bound({"object": "b", "parts": []}), "has an unknown member 'parts'"),
    "binding object unknown": (bound({"object": "c"}), "names 'c', which is not a tensor of this"),
    "binding of a resource": (bound({"object": "a"}), "names 'a', which is not a tensor of this"),
    "binding object array": (bound({"object": ["b"]}), "names an array, which is not a tensor"),
    "parts empty": (bound({"parts": []}), "text/token_embedding': parts must not be"),
    "part without range": (bound({"parts": [{"object": "b"}]}), "lacks the member 'range'"),
    "part extra": (bound({"parts": [PIECE | {"x": 1}]}), "has an unknown member 'x'"),
    "range text": (bound({"parts": [PIECE | {"range": "0:2"}]}), "must be an array, got a string"),
    "range of three": (bound({"parts": [PIECE | {"range": [0, 1, 2]}]}), "two bounds, got 3"),
    "range backwards": (bound({"parts": [PIECE | {"range": [2, 1]}]}), r"range \[2, 1\) does not"),
    "range empty": (bound({"parts": [PIECE | {"range": [2, 2]}]}), r"range \[2, 2\) does not lie"),
    "range beyond": (bound({"parts": [PIECE | {"range": [0, 5]}]}), "in the 4 elements of 'b'"),
    "range float": (bound({"parts": [PIECE | {"range": [0, 2.0]}]}), "an integer, got a float"),
    "uses map": (v3.root(uses={}), "uses must be an array, got an object"),
    "use unbound": (used(parameter="text/x"), r"uses\[0\]: parameter 'text/x' has no binding"),
    "use without input": (used(input=...), r"uses\[0\] lacks the member 'input'"),
    "use extra": (used(x=1), r"uses\[0\] has an unknown member 'x'"),
    "policy": (used(activation_policy="AllowA2"), "must be one of A16Only, AllowA8, AllowA4, got"),
    "policy null": (used(activation_policy=None), "must be one of .*, got null"),
    "policy array": (used(activation_policy=[]), "must be one of .*, got an array"),
    "use twice": (v3.root(uses=[USE, USE]), "'text/token_embedding' with input 'x' twice"),
    "auxiliary unbound": (used(auxiliaries={"x": {"object": "c"}}), "names 'c', which is not"),
    "divisor of four": (used(auxiliaries=DIVISOR), "activation_input_divisor must bind one fp32"),
    "files empty": (v3.root(files=[]), "files must be a non-empty array"),
    "entry named": (
        v3.root(files=[{"path": "a.ninfer", "payload_bytes": 264}]), r"files\[0\]: path must be n",
    ),
    "part without name": (with_part(None), r"files\[1\]: path must be .* got null"),
    "part in a folder": (with_part("x/y"), "path 'x/y' must be a plain name of a file beside"),
    "part in a folder of another system": (with_part("x\\y"), "must be a plain name of a file"),
    "part above": (with_part(".."), r"path '\.\.' must be a plain name of a file beside"),
    "part with null": (with_part("x\0"), r"files\[1\]: path holds a null character"),
    "part is the entry": (with_part("a.ninfer"), "files names the entry file 'a.ninfer' as a part"),
    "part empty": (with_part("p", 0), r"files\[1\]: payload_bytes must lie in 1\.\."),
    "part twice": (
        v3.root(files=[*v3.SMALL["files"], *[{"path": "p", "payload_bytes": 9}] * 2]),
        "files names 'p' twice",
    ),
    "files extra": (
        v3.root(files=[v3.SMALL["files"][0] | {"sha": ""}]), r"files\[0\] has an unknown member",
    ),
    "metadata array": (v3.root(metadata=[]), "metadata must be a JSON object, got an array"),
    "provenance null": (v3.root(provenance=None), "provenance must be a JSON object, got null"),
}  # fmt: skip


def refused(tmp_path, text: bytes, kind: type[ArtifactError], message: str) -> None:
    path = tmp_path / "a.ninfer"
    path.write_bytes(v3.frame(text))
    for opener in (open_artifact, read_header):
        with pytest.raises(ArtifactError, match=message) as caught:
            opener(path)
        assert type(caught.value) is kind
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", CASES)
def test_directory(tmp_path, case):
    root, message = CASES[case]
    refused(tmp_path, files.compact(root), DirectoryError, message)


def test_entry_payload_of_another_size(tmp_path):
    root = v3.root(files=[{"path": None, "payload_bytes": 265}])
    message = "holds 264 payload bytes, its directory says 265; fetch it again"
    refused(tmp_path, files.compact(root), FramingError, message)


def test_numbers_that_are_not_finite(tmp_path):
    text = files.compact(component(config={"a": 1.5})).replace(b"1.5", b"1e999")
    refused(tmp_path, text, FramingError, "directory holds the number 1e999, which no reader can")


def test_open_members_are_bounded_in_depth(tmp_path):
    deep = b'{"a":' * 100 + b"1" + b"}" * 100
    text = files.compact(component(config={"a": 7})).replace(b'{"a":7}', deep)
    refused(tmp_path, text, DirectoryError, "config is nested more than 64 levels deep")


def test_a_cut_header(tmp_path):
    whole = v3.frame(files.compact(v3.SMALL))
    path = tmp_path / "a.ninfer"
    for size in (8, 16, 31):
        path.write_bytes(whole[:size])
        with pytest.raises(FramingError, match=f"cut short inside the 32-byte header, at {size}"):
            open_artifact(path)
    for size in (32, 300, 4095, 4096, 4359):
        path.write_bytes(whole[:size])
        with pytest.raises(FramingError, match=r"cut short|holds .* payload bytes"):
            open_artifact(path)


def test_a_name_twice_among_many_is_found_at_once(tmp_path):
    """The search for the name must not take the square of the count."""
    members = b",".join(b'"p%d":{"object":"b"}' % i for i in range(60_000))
    text = files.compact(v3.root(bindings={"q": 1}))
    text = text.replace(b'{"q":1}', b"{" + members + b',"p59999":{"object":"b"}}')
    refused(tmp_path, text, FramingError, "directory has the JSON member 'p59999' twice")


def test_v1_members(tmp_path):
    path = tmp_path / "a.ninfer"
    for root, message in (
        ({"objects": []}, "lacks the member 'model_id'"),
        ({"model_id": "", "objects": []}, "model_id must be a non-empty string"),
        ({"model_id": "m", "objects": []}, "objects must be a non-empty array"),
        (files.SMALL, "directory root lacks the member 'model_id'"),
    ):
        path.write_bytes(files.frame(files.compact(root), magic=b"NINFER\x00\x01"))
        with pytest.raises(DirectoryError, match=message):
            open_artifact(path)
