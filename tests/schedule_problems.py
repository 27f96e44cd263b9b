"""Optimizers with two groups, theirs and ours, and the options that a scheduler has set."""

import optirs_web as ow

__all__ = ["on_device", "ours", "torchs", "values_of"]


def torchs(torch, kind, lrs=(0.5, 1.0)):
    options = {"momentum": 0.9} if kind == "SGD" else {}
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in lrs]
    return getattr(torch.optim, kind)(groups, **options)


def ours(device, kind="SGD", lrs=(0.5, 1.0), **options):
    groups = [{"params": [ow.Parameter([1.0], device=device)], "lr": lr} for lr in lrs]
    return getattr(ow.optim, kind)(groups, **({"momentum": 0.9, **options} if kind == "SGD" else options))


def values_of(optimizer, *names):
    return [
        group["betas"][0] if name == "beta1" else float(group[name])
        for name in names
        for group in optimizer.param_groups
    ]


def on_device(optimizer, name="lr", group=0):
    """Return the value of an option that the optimizer's kernels will read."""
    optimizer._refresh()
    layout = optimizer._built
    word = group * len(layout.rule.hyper) + layout.rule.hyper.index(name)
    return layout.device.read(layout.hyper.word_view(word)).cast("f")[0]
