"""Vision training data: answers agree with the scenes, pixels and files with the answers."""

import base64
import io
import math
import random
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from ninfer.frontend import Frontend
from ninfer.frontend.media import MediaLoader, SourceRules
from ninfer.frontend.normalize import parse_conversation
from recipes.tiny.encode import TOKENIZER_FOLDER, Encoder, read_resources
from recipes.tiny.scene_layout import SIDES, Look, arrange
from recipes.tiny.scene_media import TEMPORAL, checkpoint_loader, encode_clip, media_of
from recipes.tiny.scene_shapes import COLOURS, JITTER, KINDS, draw
from recipes.tiny.scene_words import NUMBERS, plural
from recipes.tiny.scenes import CASES, VISION_TASKS, data_uri

COUNT = 150
# In squared sizes, by school geometry from half sides (square, diamond, cross) and inner radii.
AREAS = {
    "circle": math.pi / 4,
    "square": (2 * 0.45) ** 2,
    "diamond": (2 * 0.44) ** 2,
    "triangle": 3 * math.sqrt(3) * 0.32**2,
    "cross": 2 * (2 * 0.52) * (2 * 0.17) - (2 * 0.17) ** 2,
    "star": 5 * 0.2**2 * math.tan(math.pi / 5) / math.cos(2 * math.pi / 5),
}
# Steps in pixels, y downwards.
AXES = {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}
MOVES = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
WAYS = {"left": "left", "right": "right", "top": "above", "bottom": "below"}


def cases(task: str, count: int = COUNT):
    return [CASES[task](random.Random(f"{task} {number}")) for number in range(count)]


def samples(task: str, count: int = COUNT):
    return [VISION_TASKS[task](random.Random(f"{task} {number}")) for number in range(count)]


def words(case):
    return re.findall(r"\w+", case.question.lower())


def mentioned(case, names):
    """Those of `names` that the question has, in the question's order."""
    return [word for word in words(case) if word in names]


def only(things):
    (thing,) = things
    return thing


def said(text, shapes):
    """The only shape that has all the colours and kinds of a phrase."""
    parts = [word for word in text.split() if word in COLOURS or word in KINDS]
    return only(s for s in shapes if set(parts) <= {s.colour, s.kind})


def is_beyond(first, second, way):
    dx, dy = AXES[way]
    return (first.x - second.x) * dx + (first.y - second.y) * dy > 20


@pytest.mark.parametrize("task", VISION_TASKS)
def test_the_same_seed_gives_the_same_sample(task):
    for first, again in zip(samples(task, 20), samples(task, 20), strict=True):
        bare = replace(first, media=()), replace(again, media=())
        assert bare[0] == bare[1]
        assert all(map(np.array_equal, first.media, again.media))
    assert len({str(sample.messages) for sample in samples(task, 50)}) > 25


@pytest.mark.parametrize("task", VISION_TASKS)
def test_samples_keep_the_contract(task):
    for sample in samples(task):
        user, assistant = sample.messages
        kinds = [part["type"] for part in user["content"]]
        kind = "video" if task == "video_change" else "image"
        number = 2 if task == "two_images" else 1
        assert sorted(kinds) == sorted(["text"] + [kind] * number)
        assert (sample.task, user["role"], assistant["role"]) == (task, "user", "assistant")
        assert len(sample.media) == len(sample.timestamps) == number
        for frames, times in zip(sample.media, sample.timestamps, strict=True):
            assert frames.dtype == np.uint8
            assert len(frames) == (4 if kind == "video" else 1)
            assert len(times) == (2 if kind == "video" else 0)
            assert {*frames.shape[1:3]} <= {*SIDES[: 1 if kind == "video" else None]}


@pytest.mark.parametrize("task", VISION_TASKS)
def test_the_target_passes_its_own_grade_and_no_answer_is_a_good_guess(task):
    answers = Counter()
    for sample in samples(task, 400):
        answer, grade = sample.messages[-1]["content"], sample.grade
        answers[answer] += 1
        if grade["kind"] == "exact":
            assert answer == grade["answer"]
        else:
            assert grade["kind"] == "contains"
            assert all(text in answer for text in grade["all"])
    assert max(answers.values()) <= 0.4 * answers.total()


def test_counts_are_right():
    for case in cases("image_count"):
        shapes = case.views[0][0].shapes
        colours = mentioned(case, COLOURS)
        kinds = [kind for kind in KINDS if plural(kind) in words(case)]
        assert kinds or "shapes" in words(case)
        counted = [
            shape
            for shape in shapes
            if shape.colour in (colours or COLOURS) and shape.kind in (kinds or KINDS)
        ]
        assert case.answer == str(len(counted))


def test_colours_are_right():
    for case in cases("image_colour"):
        shapes = case.views[0][0].shapes
        shape = said(" ".join(words(case)), shapes)
        assert case.answer == (shape.kind if mentioned(case, COLOURS) else shape.colour)


def test_positions_are_right():
    forms = Counter()
    for case in cases("image_position", 300):
        shapes, text = case.views[0][0].shapes, " ".join(words(case))
        phrase = r"(?:\w+ )?(?:shape|" + "|".join(KINDS) + ")"
        phrases = re.findall(rf"\bthe ({phrase})\b", text)
        if place := re.search(r"(?:on|at) the (left|right|top|bottom)$", text):
            way = WAYS[place[1]]
            (best,) = [s for s in shapes if all(is_beyond(s, o, way) for o in shapes if o is not s)]
            assert case.answer.split()[1:] == [best.colour, best.kind]
            forms["side"] += 1
        elif case.answer in AXES:
            first, second = (said(phrase, shapes) for phrase in phrases)
            if text.startswith("on which side"):
                first, second = second, first
            assert is_beyond(first, second, case.answer)
            forms["relation"] += 1
        else:
            way = only(mentioned(case, AXES))
            anchor = said(phrases[-1], shapes)
            found = [s for s in shapes if s is not anchor and is_beyond(s, anchor, way)]
            assert case.answer == only(found).kind
            forms["which"] += 1
    assert min(forms.values()) > 30
    assert len(forms) == 3


def test_descriptions_name_every_shape_once():
    for case in cases("image_describe"):
        described = Counter()
        for part in re.split(", | and ", case.answer):
            number, colour, kind = part.split()
            count = 1 if number in ("a", "an") else NUMBERS.index(number)
            name = kind if count == 1 else only(k for k in KINDS if plural(k) == kind)
            described[Look(colour, name)] += count
        assert described == Counter(Look(s.colour, s.kind) for s in case.views[0][0].shapes)


def test_the_right_one_of_two_images_is_named():
    for case in cases("two_images"):
        shapes = [scenes[0].shapes for scenes in case.views]
        if "shapes" in words(case):
            first, second = (len(s) if "more" in words(case) else -len(s) for s in shapes)
            expected = "equal" if first == second else "first" if first > second else "second"
        else:
            look = only(mentioned(case, COLOURS)), only(mentioned(case, KINDS))
            has = tuple(look in [(s.colour, s.kind) for s in side] for side in shapes)
            expected = {
                (True, True): "both",
                (True, False): "first",
                (False, True): "second",
                (False, False): "neither",
            }[has]
        assert case.answer == expected


def test_changes_are_right():
    forms = Counter()
    for case in cases("video_change", 300):
        before, after = (set(scene.shapes) for scene in only(case.views))
        gone, new = list(before - after), list(after - before)
        if not gone and not new:
            form, sentence, short = "nothing", "nothing changed", None
        elif not new:
            name = f"{gone[0].colour} {gone[0].kind}"
            form, sentence, short = "gone", f"the {name} disappeared", name
        elif not gone:
            name = f"{new[0].colour} {new[0].kind}"
            form, sentence, short = "new", f"{name} appeared", name
        elif gone[0].colour != new[0].colour:
            assert (gone[0].x, gone[0].y) == (new[0].x, new[0].y)
            short = new[0].colour
            form, sentence = "turned", f"the {gone[0].colour} {gone[0].kind} turned {short}"
        else:
            dx, dy = new[0].x - gone[0].x, new[0].y - gone[0].y
            short = only(w for w, (x, y) in MOVES.items() if (dx * x + dy * y) > 24)
            assert min(abs(dx), abs(dy)) == 0
            form, sentence = "moved", f"the {gone[0].colour} {gone[0].kind} moved {short}"
        assert len(gone) <= 1 >= len(new)
        assert re.sub("^an? ", "", case.answer) in (sentence, short)
        forms[form] += 1
    assert len(forms) == 5


@pytest.mark.parametrize("task", VISION_TASKS)
def test_pictures_show_their_scenes(task):
    for case in cases(task, 40):
        for scene in (scene for scenes in case.views for scene in scenes):
            picture = draw(scene).astype(int)
            assert picture.shape == (scene.height, scene.width, 3)
            bare = np.abs(picture - scene.background).max(axis=-1) <= scene.noise
            for shape in scene.shapes:
                middle = picture[int(shape.y), int(shape.x)]
                off = np.abs(middle - COLOURS[shape.colour])
                assert off.max() <= JITTER + scene.noise
                rows = slice(int(shape.y - shape.size / 4), int(shape.y + shape.size / 4))
                columns = slice(int(shape.x - shape.size / 4), int(shape.x + shape.size / 4))
                assert bare[rows, columns].mean() < 0.6
            # A frame of background around everything: no shape is cut.
            assert bare[[0, -1]].all()
            assert bare[:, [0, -1]].all()


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_keep_to_their_reach_and_cover_what_they_should(kind):
    rng = random.Random(kind)
    for _ in range(30):
        scene = arrange(rng, [Look("blue", kind)], noise=False)
        (shape,) = scene.shapes
        drawn = draw(scene).astype(float)
        cover = (drawn - scene.background) @ (np.array(shape.rgb) - scene.background)
        cover /= np.square(np.array(shape.rgb) - scene.background).sum()
        assert cover.sum() == pytest.approx(AREAS[kind] * shape.size**2, rel=0.03)
        y, x = np.nonzero(cover > 0.02)
        assert np.hypot(x + 0.5 - shape.x, y + 0.5 - shape.y).max() <= shape.reach + 2


def test_stars_and_triangles_point_up():
    for kind in ("star", "triangle"):
        scene = arrange(random.Random(1), [Look("blue", kind)], noise=False)
        (shape,) = scene.shapes
        rows = (draw(scene) != scene.background).any(axis=(1, 2)).nonzero()[0]
        tip = (draw(scene)[rows[0] : rows[0] + 3] != scene.background).any(axis=(0, 2))
        assert shape.y - rows[0] > rows[-1] + 1 - shape.y
        assert tip.sum() < shape.size / 4


@pytest.fixture(scope="module")
def frontend():
    return Frontend.from_resources(read_resources(TOKENIZER_FOLDER), vision=True)


def as_request(sample):
    """The user's message as a client of the server sends it."""
    content, index = [], 0
    for part in sample.messages[0]["content"]:
        if part["type"] != "text":
            name = f"{part['type']}_url"
            part = {"type": name, name: {"url": data_uri(sample, index)}}
            index += 1
        content.append(part)
    return parse_conversation([{"role": "user", "content": content}])


@pytest.mark.parametrize("task", VISION_TASKS)
def test_the_frontend_reads_the_files_as_the_trainer_sees_the_pixels(task, frontend):
    kind = "video" if task == "video_change" else "image"
    encoder = Encoder()
    for sample in samples(task, 15):
        prompt = frontend.prepare(as_request(sample))
        expected = [
            media_of(frames, times, kind)
            for frames, times in zip(sample.media, sample.timestamps, strict=True)
        ]
        # Equal digests stand for equal patches.
        assert list(prompt.media) == expected == list(encoder.media(sample))
        for read, made in zip(prompt.media, expected, strict=True):
            assert np.array_equal(read.patches, made.patches)
            assert read.timestamps == made.timestamps
            time, height, width = read.grid
            assert 16 <= height * width // 4 <= 49
            assert time == (2 if kind == "video" else 1)


def test_clips_of_the_trainer_fit_wider_bounds_too():
    loader = checkpoint_loader()
    assert loader.video.pixels.temporal == TEMPORAL
    wider = replace(loader.video.pixels, low=4096, high=1 << 24)
    bounded = MediaLoader(loader.image, replace(loader.video, pixels=wider, max_frames=768))
    for sample in samples("video_change", 5):
        conversation = as_request(sample)
        (media,) = bounded.load(conversation.messages, SourceRules())
        assert media == media_of(sample.media[0], sample.timestamps[0], "video")


def asked_about(kind, data):
    """A question with one file."""
    address = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    name = f"{kind.partition('/')[0]}_url"
    part = {"type": name, name: {"url": address}}
    return parse_conversation([{"role": "user", "content": [part]}])


@pytest.mark.parametrize(
    ("width", "height"), [(640, 480), (480, 640), (4000, 3000), (100, 80), (1920, 1080)]
)
def test_photos_become_about_as_large_as_what_was_trained(width, height, frontend):
    file = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(file, "PNG")
    (media,) = frontend.prepare(asked_about("image/png", file.getvalue())).media
    time, rows, columns = media.grid
    assert time == 1
    assert 16 <= rows * columns // 4 <= 49
    assert rows / columns == pytest.approx(height / width, rel=0.25)


@pytest.mark.parametrize(
    ("width", "height", "frames"), [(640, 480, 50), (128, 128, 4), (64, 64, 9), (320, 320, 120)]
)
def test_videos_become_two_time_steps_as_trained(width, height, frames, frontend):
    pixels = np.zeros((frames, height, width, 3), np.uint8)
    pixels += np.arange(frames, dtype=np.uint8)[:, None, None, None]
    (media,) = frontend.prepare(asked_about("video/mp4", encode_clip(pixels, Fraction(25)))).media
    time, rows, columns = media.grid
    assert time == 2
    assert 10 <= rows * columns // 4 <= 16
    if width == height:
        assert (rows, columns) == (8, 8)


def test_clips_are_small():
    sizes = [len(encode_clip(s.media[0], 2)) for s in samples("video_change", 60)]
    assert np.mean(sizes) < 4096
    assert max(sizes) < 8192


def test_a_size_that_would_be_changed_is_refused():
    with pytest.raises(ValueError, match="image of 100 x 128 pixels would become 128 x 160"):
        media_of(np.zeros((1, 128, 100, 3), np.uint8))
