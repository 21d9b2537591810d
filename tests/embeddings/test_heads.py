"""Finding the input of the task head in plain torch modules."""

import numpy as np
import pytest
import torch
from torch import nn

from ruler.core.errors import InputError, LayerNotFoundError
from ruler.embeddings import embed
from ruler.embeddings.running import answering

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(3))
ROWS = torch.randn(6, 5, generator=torch.Generator().manual_seed(4))


def assert_close(a, b):
    np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5, atol=1e-6)


class Net(nn.Module):
    """Children in the order given; ``forward`` is a function of the module and its input."""

    def __init__(self, run, **children):
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x):
        return self.run(self, x)


def test_three_layer_cnn_gives_its_second_fully_connected_layer():
    head = nn.Sequential(nn.Linear(4 * 64, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 3))
    model = Net(lambda m, x: m.classifier(m.conv(x).flatten(1)), conv=nn.Conv2d(3, 4, 3, padding=1), classifier=head)
    result = embed(model, IMAGES)
    assert_close(result.values, torch.relu(head[0](model.conv(IMAGES).flatten(1))))
    assert result.layer == "classifier.3:input"


def test_resnet_like_gives_the_pooled_activation():
    model = Net(lambda m, x: m.fc(m.conv(x).mean((2, 3))), fc=nn.Linear(4, 2), conv=nn.Conv2d(3, 4, 3))
    result = embed(model, IMAGES)
    assert_close(result.values, model.conv(IMAGES).mean((2, 3)))
    assert result.layer == "fc:input"


def test_head_replaced_by_identity_is_still_the_head():
    model = Net(lambda m, x: m.fc(m.conv(x).mean((2, 3))), conv=nn.Conv2d(3, 4, 3), fc=nn.Identity())
    assert_close(embed(model, IMAGES).values, model.conv(IMAGES).mean((2, 3)))


def test_feature_maps_are_averaged():
    model = Net(lambda m, x: m.head(m.conv(x)).mean((2, 3)), conv=nn.Conv2d(3, 4, 3), head=nn.Conv2d(4, 2, 1))
    assert_close(embed(model, IMAGES).values, model.conv(IMAGES).mean((2, 3)))
    assert_close(embed(model, IMAGES, layer="conv").values, model.conv(IMAGES).mean((2, 3)))


def test_last_linear_that_runs_wins_over_the_last_that_is_defined():
    model = Net(lambda m, x: m.out(m.first(x).relu()).softmax(-1), out=nn.Linear(4, 2), first=nn.Linear(5, 4))
    result = embed(model, ROWS)
    assert_close(result.values, model.first(ROWS).relu())
    assert result.layer == "out:input"


def test_named_head_wins_over_a_linear_that_runs_later():
    model = Net(lambda m, x: (m.fc(x.relu()), m.project(x)), fc=nn.Linear(5, 2), project=nn.Linear(5, 5))
    assert_close(embed(model, ROWS).values, ROWS.relu())


def test_of_two_named_heads_the_last_to_run_is_the_head():
    model = Net(lambda m, x: m.classifier(m.head(x).relu()), classifier=nn.Linear(4, 2), head=nn.Linear(5, 4))
    assert_close(embed(model, ROWS).values, model.head(ROWS).relu())


def test_wrappers_are_opened_to_find_the_named_head():
    inner = Net(lambda m, x: (m.fc(x.relu()), m.project(x)), fc=nn.Linear(5, 2), project=nn.Linear(5, 5))
    outer = Net(lambda m, x: m.model(x), model=inner)
    result = embed(outer, ROWS)
    assert_close(result.values, ROWS.relu())
    assert result.layer == "model.fc:input"


def test_gate_deep_inside_is_no_head():
    model = Net(
        lambda m, x: m.last(x * m.gate(x.mean((2, 3)))[:, :, None, None]), gate=nn.Linear(3, 3), last=nn.Conv2d(3, 2, 1)
    )
    with pytest.raises(LayerNotFoundError, match="a last Linear that does not make the model's output"):
        embed(model, IMAGES)


def test_model_without_any_head_is_refused():
    with pytest.raises(LayerNotFoundError, match=r"must have a task head, a child named fc, .* got neither"):
        embed(nn.Sequential(nn.Conv2d(3, 2, 1)), IMAGES)


def test_layer_that_runs_twice_or_never_is_refused():
    model = Net(lambda m, x: m.fc(x) + m.fc(-x), fc=nn.Linear(5, 2), spare=nn.Linear(5, 2))
    with pytest.raises(LayerNotFoundError, match="'fc:input' must run once in a forward pass; it ran 2 times"):
        embed(model, ROWS)
    with pytest.raises(LayerNotFoundError, match="'spare' must run once in a forward pass; it ran 0 times"):
        embed(model, ROWS, layer="spare")


def test_keyword_input_of_a_head_is_read():
    class Head(nn.Module):
        def forward(self, *, hidden):
            return hidden.sum(1)

    model = Net(lambda m, x: m.head(hidden=x.relu()), head=Head())
    assert_close(embed(model, ROWS).values, ROWS.relu())


def test_layer_without_one_vector_a_record_is_refused():
    model = Net(lambda m, x: m.fc(x.reshape(-1, 1)), fc=nn.Linear(1, 2))
    with pytest.raises(InputError, match=r"one vector per record; got shape \(30, 1\) for 6 records"):
        embed(model, ROWS)


def test_layer_without_a_tensor_is_refused():
    class Silent(nn.Module):
        def forward(self, x):
            return None

    model = Net(lambda m, x: (m.silent(x), m.fc(x))[1], silent=Silent(), fc=nn.Linear(5, 2))
    with pytest.raises(InputError, match="layer 'silent' must carry a tensor; got NoneType"):
        embed(model, ROWS, layer="silent")


class TinyLanguageModel(nn.Module):
    def __init__(self, head_name):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.head_name = nn.Embedding(20, 4), head_name
        self.add_module(head_name, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 20)))

    def forward(self, input_ids, attention_mask=None):
        return getattr(self, self.head_name)(self.tokens(input_ids))


def test_token_heads_are_read_at_their_own_input():
    tokens = torch.arange(18).reshape(6, 3)
    masked, causal = TinyLanguageModel("cls"), TinyLanguageModel("lm_head")
    assert_close(embed(masked, tokens).values, masked.tokens(tokens[:, 0]))
    assert_close(embed(causal, tokens).values, causal.tokens(tokens[:, 2]))
    assert embed(causal, tokens).layer == "lm_head:input"
    mask = torch.tensor([[1, 1, 0]] * 6)
    assert_close(embed(causal, {"input_ids": tokens, "attention_mask": mask}).values, causal.tokens(tokens[:, 1]))
    assert_close(
        embed(causal, {"input_ids": tokens, "attention_mask": mask}, layer="lm_head:input").values,
        causal.tokens(tokens[:, 1]),
    )
    with pytest.raises(InputError, match=r"attention_mask must cover the \(6, 3\) tokens .* got shape \(6, 2\)"):
        embed(causal, {"input_ids": tokens, "attention_mask": mask[:, :2]})


def test_recurrent_layer_gives_its_last_step():
    model = Net(lambda m, x: m.fc(m.rnn(x)[0][:, -1]), rnn=nn.GRU(8, 4, batch_first=True), fc=nn.Linear(4, 2))
    sequences = IMAGES[:, 0]
    assert_close(embed(model, sequences, layer="rnn").values, model.rnn(sequences)[0][:, -1])
    np.testing.assert_array_equal(embed(model, sequences, layer="rnn").values, embed(model, sequences).values)


# several layers


class Plain(nn.Module):
    """Blocks in a list, which never runs itself, and a norm used twice."""

    def __init__(self):
        super().__init__()
        self.inlet, self.blocks = nn.Linear(5, 4), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.act, self.out, self.after = nn.Tanh(), nn.Linear(4, 3), nn.Softmax(1)

    def forward(self, x):
        x = self.inlet(x)
        for block in self.blocks:
            x = self.act(block(x))
        return self.after(self.out(x))


def sequential():
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4)), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.trunk(x))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (sequential, ["0", "1", "3", "5:input"]),
        (Plain, ["inlet", "blocks.0", "blocks.1", "blocks.2", "out:input"]),
        (Wrapper, ["trunk.0", "trunk.1", "head:input"]),
        (lambda: nn.Linear(5, 2), [":input"]),
    ],
)
def test_all_layers_are_the_blocks_on_the_way_to_the_head(make, expected):
    torch.manual_seed(0)
    model, rows = make(), torch.randn(6, 5)
    found = embed(model, rows, layer="all", batch_size=4)
    assert list(found) == expected
    for name, one in found.items():
        assert one.layer == name
        np.testing.assert_array_equal(one.values, embed(model, rows, layer=name, batch_size=4).values)
    np.testing.assert_array_equal(one.values, embed(model, rows, batch_size=4).values)


def test_named_layers_come_in_forward_order():
    torch.manual_seed(0)
    model, rows = sequential(), torch.randn(6, 5)
    found = embed(model, (rows, torch.arange(6) % 2), layer=["5:input", "0", "0"])
    assert list(found) == ["0", "5:input"]
    np.testing.assert_array_equal(found["0"].losses, found["5:input"].losses)
    np.testing.assert_array_equal(found["0"].labels, found["5:input"].labels)
    assert list(embed(model, rows, layer=["3"])) == ["3"]


def test_a_list_of_layers_names_at_least_one():
    with pytest.raises(InputError, match="layer must name at least one module; got an empty list"):
        embed(sequential(), torch.randn(6, 5), layer=[])
    with pytest.raises(LayerNotFoundError, match="got '9'"):
        embed(sequential(), torch.randn(6, 5), layer=["0", "9"])


def test_answering_in_place_of_running_is_undone():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.forward = own = lambda rows: rows + 1
    with answering([first, second], "answer"):
        assert first(torch.ones(1, 2)) == second(torch.ones(1, 2)) == "answer"
    assert "forward" not in vars(first)
    assert second.forward is own
