"""GPT-2 small with random weights on synthetic tokens: forward, backward, AdamW."""

import training

import torch
import transformers


def main():
    opts = training.options(__doc__, batch=4)
    training.deterministic(opts)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    [tokens] = training.batch_of(opts, torch.randint(50257, (opts.batch, 1024)))

    def step():
        batch = tokens.cuda()
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    training.train(step, opts)


if __name__ == "__main__":
    main()
