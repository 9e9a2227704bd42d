"""State kept in host memory: optimizer states and gradients that travel between host and GPU on streams."""

from checks.side_by_side import PEAK, side_by_side
from checks.suite import case


@case
def zero_offload(suite):
    """ZeRO's offload in torch alone: gradients to pinned memory as they come, Adam on the host, weights back."""
    side_by_side(
        suite,
        "zero_offload",
        """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU()) for _ in range(8)]).cuda().bfloat16()
down, up = torch.cuda.Stream(), torch.cuda.Stream()
host = {}
for p in net.parameters():
    master = p.detach().float().cpu().pin_memory()
    host[p] = (master, torch.empty(p.shape, dtype=torch.bfloat16, pin_memory=True), torch.cuda.Event())
optimizer = torch.optim.Adam([master for master, _, _ in host.values()], lr=1e-3)

def leaves(p):
    master, gradient, ready = host[p]
    down.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(down):
        gradient.copy_(p.grad, non_blocking=True)
        p.grad.record_stream(down)
        ready.record()
    p.grad = None
for p in net.parameters():
    p.register_post_accumulate_grad_hook(leaves)

for i in range(12):
    x = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
    loss = (net(x) - 1).float().square().mean()
    loss.backward()
    for p, (master, gradient, ready) in host.items():
        ready.synchronize()
        master.grad = gradient.float()
    optimizer.step()
    with torch.cuda.stream(up):
        for p, (master, _, _) in host.items():
            staged = master.bfloat16().pin_memory().cuda(non_blocking=True)
            with torch.no_grad():
                p.copy_(staged)
            staged.record_stream(up)
    torch.cuda.current_stream().wait_stream(up)
    print("result", i, float(loss), float(sum(p.double().sum() for p in net.parameters())))
"""
        + PEAK,
    )
