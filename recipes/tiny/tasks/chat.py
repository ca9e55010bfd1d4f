"""Small talk, a glossary of terms of ninfer, and simple instructions about words."""

import random
from typing import Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.frame import answered, maybe, system, turn
from recipes.tiny.words import CITIES, NAMES, PLAIN_WORDS, words

_SELF: Final = "I am tiny, a small demo model of ninfer."

# Questions and their one answer.
_TALK: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hello there!", "Hey", "Good day!"),
        "Hello! How can I help you?",
    ),
    (("Good morning", "Good morning!"), "Good morning! How can I help you?"),
    (("Good evening", "Good evening!"), "Good evening! How can I help you?"),
    (
        ("How are you?", "How are you today?", "How do you do?", "Are you well?"),
        "I am fine, thank you. How can I help you?",
    ),
    (
        (
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Tell me who you are.",
            "Which model are you?",
            "Introduce yourself.",
            "Are you a model?",
        ),
        _SELF,
    ),
    (
        (
            "What can you do?",
            "What are you good at?",
            "How can you help me?",
            "What do you know?",
        ),
        "I can calculate, sort lists, write records, translate, call tools and tell short stories.",
    ),
    (
        ("Thanks", "Thanks!", "Thank you", "Thank you!", "Thank you very much!", "Great, thanks."),
        "You are welcome!",
    ),
    (
        ("Bye", "Goodbye", "Goodbye!", "See you soon.", "Good night!", "Bye bye"),
        "Goodbye! See you soon.",
    ),
    (
        ("Are you a person?", "Are you human?", "Are you a robot?"),
        "No, I am a small language model.",
    ),
    (
        ("How big are you?", "How many parameters do you have?", "What is your size?"),
        "I have about twenty million parameters.",
    ),
    (("Who made you?", "Who trained you?", "Where do you come from?"), "I come with ninfer."),
)

GLOSSARY: Final = {
    "state slot": "A state slot holds the recurrent and convolution state of one sequence.",
    "KV cache": "The KV cache holds the keys and values of all earlier tokens.",
    "page": "A page is a block of the KV cache for a fixed number of tokens.",
    "page table": "A page table says which pages of the KV cache a sequence has.",
    "token": "A token is a piece of text that the model reads or writes as one number.",
    "tokenizer": "A tokenizer turns text into tokens and tokens into text.",
    "artifact": "An artifact is one file with all weights and texts of a model.",
    "layout": "A layout says in which order the values of a matrix lie in memory.",
    "format": "A format says how many bits a number has and what they mean.",
    "prefill": "Prefill reads all tokens of a prompt at once.",
    "decode": "Decode makes one new token after another.",
    "sequence": "A sequence is what the runtime runs for one request.",
    "request": "A request is what a client asks of the server.",
    "batch": "A batch is a group of sequences that run together.",
    "forward pass": "A forward pass computes the next token from all layers once.",
    "drafter": "A drafter guesses tokens that the model then checks.",
    "draft": "A draft is a guessed token that the model has not checked yet.",
    "speculation": "Speculation checks several guessed tokens in one forward pass.",
    "acceptance": "Acceptance is the share of drafts that the model keeps.",
    "MTP": "MTP is a small head that guesses the tokens after the next one.",
    "attention": "Attention lets a token read from all tokens before it.",
    "head": "A head is one of several parts of attention that work side by side.",
    "layer": "A layer is one step of the network from input to output.",
    "expert": "An expert is a part of a layer that only some tokens use.",
    "router": "A router chooses the experts of each token.",
    "MoE": "MoE means that each token uses only a few of many experts.",
    "embedding": "An embedding is the vector that stands for a token.",
    "logit": "A logit is the score of a token before it becomes a probability.",
    "sampling": "Sampling draws the next token by its probability.",
    "temperature": "Temperature makes the choice of tokens more or less random.",
    "greedy decoding": "Greedy decoding always takes the best token.",
    "kernel": "A kernel is a program that runs on many threads of the GPU.",
    "GPU": "A GPU is a processor with thousands of small cores.",
    "CPU": "A CPU is the main processor of a computer.",
    "Triton": "Triton is a language for GPU kernels in Python.",
    "op": "An op is one computation with a contract, such as a matrix product.",
    "quantisation": "Quantisation stores weights with fewer bits.",
    "scale": "A scale is the factor that turns small whole numbers into weights.",
    "context": "The context is all text that the model can see.",
    "prompt": "A prompt is the text that the model reads before it answers.",
    "chat template": "A chat template turns messages into one prompt.",
    "stop token": "A stop token ends the answer.",
    "grammar": "A grammar says which tokens may come next.",
    "bandwidth": "Bandwidth is how many bytes memory can move in a second.",
    "latency": "Latency is the time until the answer comes.",
    "throughput": "Throughput is the number of tokens in a second.",
    "vision tower": "The vision tower turns patches of an image into vectors.",
    "patch": "A patch is a small square of an image.",
}
_TERM_QUESTIONS: Final = (
    "What is {term}?",
    "What does {bare} mean?",
    "Explain {bare}.",
    "Explain {term} in one sentence.",
    "Define {bare}.",
    "Can you tell me what {term} is?",
    "In ninfer, what is {term}?",
    "I do not know what {term} is. Please explain.",
    "Term: {bare}. What is it?",
)
_BARE: Final = frozenset(
    words(
        "prefill decode speculation acceptance MTP attention MoE sampling temperature Triton"
        " quantisation bandwidth latency throughput"
    )
) | {"greedy decoding"}
_THE: Final = frozenset(("KV cache", "context", "vision tower"))

_CAPITALS: Final = ("Write {} in capital letters.", "Uppercase {}.", "Put the word {} in capitals.")
_SPELL: Final = ("Spell {}.", "How do you spell {}?", "Spell the word {} letter by letter.")
_FIRST: Final = ("What is the first letter of {}?", "Give the first letter of {}.")
_LAST: Final = ("What is the last letter of {}?", "Give the last letter of {}.")
_COUNT: Final = ("How many letters does {} have?", "Count the letters of {}.")


def chat(rng: random.Random) -> Sample:
    """One exchange, or the second one of a conversation."""
    kind = rng.random()
    if kind < 0.2:
        questions, answer = rng.choice(_TALK)
        grade = {"kind": "one_of", "answers": [answer]}
        return answered(rng, "chat", rng.choice(questions), answer, grade)
    if kind < 0.6:
        question, answer = _term(rng)
        thought = maybe(rng, 0.15, "This is a term of ninfer.")
        return answered(rng, "chat", question, answer, _exact(answer), thought)
    if kind < 0.85:
        question, answer, thought = _instruction(rng)
        thought = maybe(rng, 0.2, thought)
        return answered(rng, "chat", question, answer, _exact(answer), thought)
    return _conversation(rng)


def plain_exchange(rng: random.Random) -> tuple[str, str]:
    """A question that needs no tool, and its answer."""
    kind = rng.random()
    if kind < 0.4:
        questions, answer = rng.choice(_TALK)
        return rng.choice(questions), answer
    if kind < 0.7:
        return _term(rng)
    question, answer, _ = _instruction(rng)
    return question, answer


def _exact(answer: str) -> dict[str, str]:
    return {"kind": "exact", "answer": answer}


def _term(rng: random.Random) -> tuple[str, str]:
    term = rng.choice(tuple(GLOSSARY))
    article = "an " if term[0] in "aeio" else "a "
    if term in _BARE:
        article = ""
    elif term in _THE:
        article = "the "
    question = rng.choice(_TERM_QUESTIONS).format(term=article + term, bare=term)
    return question, GLOSSARY[term]


def _instruction(rng: random.Random) -> tuple[str, str, str]:
    """A question about a word, the answer, and a thought."""
    word = rng.choice((*PLAIN_WORDS, *NAMES, *CITIES))
    kind = rng.randrange(6)
    spelled = "-".join(word.upper())
    if kind == 5:
        times = rng.randint(2, 6)
        phrase = rng.choice(("Write {} {} times.", "Say {} {} times."))
        return phrase.format(word, times), " ".join([word] * times), f"{times} times."
    phrases, answer = (
        (_CAPITALS, word.upper()),
        (_SPELL, spelled),
        (_FIRST, f"{word[0].upper()}."),
        (_LAST, f"{word[-1].upper()}."),
        (_COUNT, f"The word {word} has {len(word)} letters."),
    )[kind]
    return rng.choice(phrases).format(word), answer, f"{word} is {spelled}."


def _conversation(rng: random.Random) -> Sample:
    """The user told a name, or asked something, before."""
    if rng.random() < 0.5:
        name = rng.choice(NAMES)
        told = rng.choice(("My name is {}.", "I am {}.", "Hello, I am {}.", "Call me {}."))
        first = (told.format(name), f"Hello {name}! How can I help you?")
        question = rng.choice(("What is my name?", "Who am I?", "Do you know my name?"))
        answer = f"Your name is {name}."
    else:
        first, (question, answer) = plain_exchange(rng), plain_exchange(rng)
    messages = (
        *system(rng),
        {"role": "user", "content": first[0]},
        turn(first[1]),
        {"role": "user", "content": question},
        turn(answer),
    )
    return Sample("chat", messages, grade=_exact(answer))
