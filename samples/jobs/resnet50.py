"""ResNet-50 on synthetic images: forward, backward, SGD with momentum."""

import training

import torch
import torchvision


def main():
    opts = training.options(__doc__, batch=72)
    training.deterministic(opts)
    model = torchvision.models.resnet50(weights=None).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(opts.batch, 3, 224, 224)
    labels = torch.randint(1000, (opts.batch,))

    def step():
        loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    training.train(step, opts.iterations)


if __name__ == "__main__":
    main()
