import torch

from ruler.models.residual_mlp import ResidualMLP


def test_blocks_add_to_what_passes_through() -> None:
    model, rows = ResidualMLP(6, n_blocks=2).eval(), torch.randn(5, 6)
    for block in model.blocks:
        torch.nn.init.zeros_(block.contract.weight)
        torch.nn.init.zeros_(block.contract.bias)
    with torch.no_grad():
        assert torch.equal(model.blocks(model.stem(rows)), model.stem(rows))


def test_a_block_is_its_formula() -> None:
    block, x = ResidualMLP(6).blocks[0].eval(), torch.randn(5, 128)
    with torch.no_grad():
        centred = x - x.mean(1, keepdim=True)
        normed = centred / (centred.pow(2).mean(1, keepdim=True) + 1e-5).sqrt()
        hidden = (normed @ block.expand.weight.T + block.expand.bias).clamp(min=0)
        expected = x + hidden @ block.contract.weight.T + block.contract.bias
        torch.testing.assert_close(block(x), expected)


def test_dropout_acts_in_train_mode_only() -> None:
    model, rows = ResidualMLP(6, dropout=0.5), torch.randn(5, 6)
    assert not torch.equal(model(rows), model(rows))
    model.eval()
    assert torch.equal(model(rows), model(rows))


def test_size_follows_the_arguments() -> None:
    model = ResidualMLP(6, 3, width=32, n_blocks=5)
    assert len(model.blocks) == 5
    assert model.penultimate(torch.zeros(2, 6)).shape == (2, 32)
