"""Models that are written once, for torch and for us: the same text, outputs, gradients and training."""

import numpy as np
import pytest
from torch_twins import TOLERANCE, assert_close, classes, floats, in_torch, twins, upper

import optirs_web as ow


def mlp(lib):
    torch_nn = lib.nn

    class MLP(torch_nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = torch_nn.ModuleList([torch_nn.Linear(6, 16), torch_nn.Linear(16, 16)])
            self.norm = torch_nn.LayerNorm(16)
            self.out = torch_nn.Linear(16, 4)

        def forward(self, x):
            for layer in self.hidden:
                x = lib.nn.functional.relu(layer(x))
            return self.out(self.norm(x))

    return MLP()


def cnn(lib):
    torch_nn = lib.nn

    class CNN(torch_nn.Module):
        def __init__(self):
            super().__init__()
            self.features = torch_nn.Sequential(
                torch_nn.Conv2d(1, 6, 3, padding=1, bias=False),
                torch_nn.BatchNorm2d(6),
                torch_nn.ReLU(),
                torch_nn.MaxPool2d(2),
            )
            self.block = torch_nn.Conv2d(6, 6, 3, padding=1)
            self.pool = torch_nn.AvgPool2d(2)
            self.dropout = torch_nn.Dropout(0.0)
            self.head = torch_nn.Linear(6 * 4, 4)

        def forward(self, x):
            x = self.features(x)
            x = x + lib.nn.functional.silu(self.block(x))
            x = self.pool(x)
            return self.head(self.dropout(x.reshape(x.shape[0], -1)))

    return CNN()


def transformer(lib):
    torch_nn = lib.nn

    class Block(torch_nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.norm1, self.norm2 = torch_nn.LayerNorm(width), torch_nn.LayerNorm(width)
            self.attention = torch_nn.MultiheadAttention(width, heads, batch_first=True)
            self.mlp = torch_nn.Sequential(
                torch_nn.Linear(width, 2 * width), torch_nn.GELU(), torch_nn.Linear(2 * width, width)
            )

        def forward(self, x, mask):
            normed = self.norm1(x)
            x = x + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    class Transformer(torch_nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = torch_nn.Embedding(11, 8)
            self.places = torch_nn.Parameter(lib.zeros((5, 8)))
            self.blocks = torch_nn.ModuleList([Block(8, 2) for _ in range(2)])
            self.norm = torch_nn.LayerNorm(8)
            self.head = torch_nn.Linear(8, 11, bias=False)
            self.head.weight = self.tokens.weight
            self.register_buffer("mask", lib.tensor(upper(5)(None)))
            torch_nn.init.normal_(self.places, std=0.02)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places
            for block in self.blocks:
                x = block(x, self.mask)
            return self.head(self.norm(x)).transpose(1, 2)

    return Transformer()


MODELS = {
    "mlp": (mlp, [floats(12, 6), classes(4, 12)]),
    "cnn": (cnn, [floats(6, 1, 8, 8), classes(4, 6)]),
    "transformer": (transformer, [classes(11, 4, 5), classes(11, 4, 5)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_torchs_words_follows_torch(torch, device, name):
    build, makers = MODELS[name]
    theirs, ours = twins(torch, build, device)
    assert repr(ours) == repr(theirs).replace("NonDynamicallyQuantizableLinear", "Linear")
    rng = np.random.default_rng(0)
    x, y = (make(rng) for make in makers)
    their_x, their_y = in_torch(torch, x).detach(), in_torch(torch, y)
    our_x, our_y = ow.tensor(x, device=device), ow.tensor(y, device=device)
    assert_close(ours(our_x), theirs(their_x), "output")
    optimizers = [lib.optim.AdamW(model.parameters(), lr=1e-3) for lib, model in ((ow, ours), (torch, theirs))]
    for step in range(4):
        losses = (
            ow.nn.functional.cross_entropy(ours(our_x), our_y),
            torch.nn.functional.cross_entropy(theirs(their_x), their_y),
        )
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=TOLERANCE)
        if step == 0:
            pairs = zip(ours.named_parameters(), theirs.named_parameters(), strict=True)
            for (parameter, param), (_, other) in pairs:
                error = np.abs(param.grad.numpy() - other.grad.numpy()).max()
                assert error <= TOLERANCE * np.abs(other.grad.numpy()).max(), parameter
        for optimizer in optimizers:
            optimizer.step()
    assert_close(ours.eval()(our_x), theirs.eval()(their_x), "output after training")
