"""AlexNet on synthetic images: forward, backward, SGD with momentum."""

import training

import torchvision

if __name__ == "__main__":
    training.classify(__doc__, lambda: torchvision.models.alexnet(weights=None), batch=64)
