import torch
from tests.embeddings.causal_models import make_gpt2, make_llama, make_records

from ruler.embeddings.language.tokens import read_tokens
from ruler.metrics.peers.exact_memorization import exact_memorization
from ruler.metrics.peers.extraction_strength import extraction_strength


def decode_greedily(model, tokens, n_more):
    for _ in range(n_more):
        with torch.no_grad():
            following = model(tokens[None]).logits[0, -1].argmax()
        tokens = torch.cat([tokens, following[None]])
    return tokens


def plant(model, data, n_wrong):
    """Completions that the model gives by itself, but for the first tokens."""
    tokens, labels = data["input_ids"].clone(), data["labels"].clone()
    for row in range(len(tokens)):
        start, stop = int((labels[row] != -100).nonzero()[0]), int(data["attention_mask"][row].sum())
        shown = min(start + n_wrong[row], stop)
        tokens[row, :stop] = decode_greedily(model, tokens[row, :shown], stop - shown)
        labels[row, start:stop] = tokens[row, start:stop]
    return {**data, "input_ids": tokens, "labels": labels}


def test_teacher_forcing_tells_what_greedy_decoding_gives():
    for make in (make_gpt2, make_llama):
        model = make()
        data = plant(model, make_records(), [0, 1, 2, 3, 0, 1, 2, 3, 9])
        found = extraction_strength(read_tokens(model, data)).records
        for row, (tokens, labels) in enumerate(zip(data["input_ids"], data["labels"], strict=True)):
            own = (labels != -100).nonzero()[:, 0]
            start, stop = int(own[0]), int(own[-1]) + 1
            n_shown = next(
                k
                for k in range(stop - start + 1)
                if torch.equal(decode_greedily(model, tokens[: start + k], stop - start - k), tokens[:stop])
            )
            assert found[row] == 1 - n_shown / (stop - start)


def test_a_model_memorises_what_it_says_by_itself():
    model = make_llama()
    reading = read_tokens(model, plant(model, make_records(), [0] * 9))
    assert extraction_strength(reading).value == 1
    assert exact_memorization(reading).value == 1
