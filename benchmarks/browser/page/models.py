"""Our models of the cases of steps.py, built of the library's modules."""

from optirs_web import nn
from optirs_web.nn import functional as F


class Residual(nn.Module):
    """Two convolutions with a residual connection; with a stride, the input is projected first."""

    def __init__(self, inputs, outputs, stride, device):
        super().__init__()
        self.first = convolution(inputs, outputs, 3, stride, device)
        self.second = convolution(outputs, outputs, 3, 1, device)
        self.shortcut = nn.Identity() if stride == 1 else convolution(inputs, outputs, 1, stride, device)

    def forward(self, x):
        """Return the sum of both branches, (n, outputs, height, width)."""
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def convolution(inputs, outputs, side, stride, device):
    """Return a convolution and a batch norm without running statistics."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, bias=False, device=device),
        nn.BatchNorm2d(outputs, track_running_stats=False, device=device),
    )


def resnet(blocks, device):
    """Return a ResNet for images of CIFAR's shape, from the channels and strides of its blocks."""
    return nn.Sequential(
        convolution(3, blocks[0][0], 3, 1, device),
        nn.ReLU(),
        *(Residual(*block, device) for block in blocks),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(blocks[-1][1], 10, device=device),
    )
