"""A zoo of models, trained on synthetic data from random weights: images and language.

    python3 samples/jobs/zoo.py --model resnet50
    torchrun --nproc_per_node 2 samples/jobs/zoo.py --model resnet50    two data-parallel workers

Networks for images are trained by SGD with momentum, transformers by AdamW, in float32.
Nothing is downloaded. Runs of the same options have the same losses, bit by bit.
"""

import argparse
import os
import sys

import training

import torch
import torch.nn.functional as F

CLASSES = 1000


class Images:
    """A classifier of images."""

    def __init__(self, build, batch=64, size=224, rate=0.01, auxiliary=0.0, optimizer="sgd"):
        self.build, self.batch, self.size, self.rate = build, batch, size, rate
        self.auxiliary = auxiliary  # weight of the losses of auxiliary heads
        self.optimizer = optimizer

    def data(self, batch):
        return torch.randn(batch, 3, self.size, self.size), torch.randint(CLASSES, (batch,))

    def loss(self, model, images, labels):
        heads = model(images)
        if isinstance(heads, torch.Tensor):
            return F.cross_entropy(heads, labels)
        loss, *others = [F.cross_entropy(head, labels) for head in heads]
        return loss + self.auxiliary * sum(others)


class Language:
    """A language model: predicts the next tokens, or, if masked, the tokens that are left out."""

    def __init__(self, build, vocabulary, batch=32, tokens=256, masked=0.0, rate=1e-4):
        self.build, self.vocabulary, self.batch, self.tokens, self.rate = build, vocabulary, batch, tokens, rate
        self.masked = masked  # share of tokens left out
        self.optimizer = "adamw"

    def data(self, batch):
        tokens = torch.randint(self.vocabulary, (batch, self.tokens))
        if not self.masked:
            return tokens, tokens
        hidden = torch.rand(batch, self.tokens) < self.masked
        return tokens.masked_fill(hidden, 0), tokens.masked_fill(~hidden, -100)  # -100: no loss there

    def loss(self, model, tokens, labels):
        return model(input_ids=tokens, labels=labels).loss


def vision(name, **options):
    def build():
        import torchvision

        return getattr(torchvision.models, name)(weights=None, **options)

    return build


def googlenet():
    """GoogLeNet with the paper's pooling in its auxiliary heads: torchvision's is not deterministic."""
    import torchvision
    from torchvision.models.googlenet import BasicConv2d, Inception, InceptionAux

    class Auxiliary(InceptionAux):
        def forward(self, x):
            return super().forward(F.avg_pool2d(x, 5, 3))  # 14 x 14 to 4 x 4

    return torchvision.models.googlenet(weights=None, aux_logits=True, init_weights=False, blocks=[BasicConv2d, Inception, Auxiliary])


def bert():
    import transformers

    return transformers.BertForMaskedLM(transformers.BertConfig())


def gpt2():
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))


# A decoder of about 130 million parameters. The mixture of experts has fewer layers: each expert
# allocates by itself, and a recording of 20 iterations should have less than 1 MiB.
SMALL = dict(
    vocab_size=32000, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=2048, use_cache=False
)


def llama():
    import transformers

    return transformers.LlamaForCausalLM(transformers.LlamaConfig(intermediate_size=2048, **SMALL))


def moe():
    import transformers

    config = transformers.MixtralConfig(intermediate_size=1024, num_local_experts=8, num_experts_per_tok=2, **dict(SMALL, num_hidden_layers=8))
    model = transformers.MixtralForCausalLM(config)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the grouped one is not deterministic
    return model


ZOO = {
    "alexnet": Images(vision("alexnet")),
    "vgg11": Images(vision("vgg11")),
    "vgg16": Images(vision("vgg16")),
    "vgg19": Images(vision("vgg19")),
    "googlenet": Images(googlenet, auxiliary=0.3),
    "inception_v3": Images(vision("inception_v3", init_weights=False), size=299, auxiliary=0.4),
    "resnet50": Images(vision("resnet50")),
    "resnet101": Images(vision("resnet101"), batch=32),
    "resnet152": Images(vision("resnet152"), batch=32),
    "densenet121": Images(vision("densenet121")),
    "mobilenet_v2": Images(vision("mobilenet_v2")),
    "squeezenet1_1": Images(vision("squeezenet1_1"), rate=0.001),
    "vit_b_16": Images(vision("vit_b_16"), batch=32, rate=1e-4, optimizer="adamw"),
    "bert": Language(bert, vocabulary=30522, tokens=128, masked=0.15),
    "gpt2": Language(gpt2, vocabulary=50257),
    "llama": Language(llama, vocabulary=32000),
    "moe": Language(moe, vocabulary=32000),
}


def parallel(model):
    """The model, data-parallel where torchrun started several workers. The first one prints."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return model.cuda()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    if rank > 0:
        sys.stdout = open(os.devnull, "w")
    return torch.nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[rank])


def main():
    parser = training.parser(__doc__, batch=None)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", choices=sorted(ZOO), required=True)
    parser.add_argument("--start-at", metavar="FILE", help="build the model, then wait for this file before the card is touched")
    parser.add_argument("--stop-at", metavar="FILE", help="train until this file is there")
    opts = parser.parse_args()
    kind = ZOO[opts.model]
    training.deterministic(opts)
    network = kind.build()
    if opts.start_at:
        training.await_file(opts.start_at)
    model = parallel(network)
    torch.manual_seed(opts.seed + int(os.environ.get("RANK", "0")))  # each worker gets its own data
    inputs, labels = training.batch_of(opts, *kind.data(opts.batch or kind.batch))
    if kind.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=kind.rate, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=kind.rate)

    def step():
        loss = kind.loss(model, inputs.cuda(), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    training.train(step, opts, until=training.until_file(opts.stop_at))
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
