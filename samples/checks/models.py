"""Libraries of models, unchanged: trained, exported and searched with and without memprof."""

import concurrent.futures
import os
import shutil

from checks.side_by_side import PEAK, distance, results, side_by_side
from checks.suite import Failed, case

START = """
import os, warnings
warnings.filterwarnings("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
torch.manual_seed(0)
torch.backends.cudnn.deterministic = True
"""


def trained(suite, name, text, *flags):
    return side_by_side(suite, name, START + text + PEAK, *flags)


@case
def timm_models(suite):
    """timm: a vision transformer and a convolutional network, mixed precision, a moving average of weights."""
    trained(
        suite,
        "timm_models",
        """
import timm
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
for kind in ("vit_tiny_patch16_224", "convnext_atto"):
    torch.manual_seed(0)
    model = timm.create_model(kind, pretrained=False, num_classes=10, drop_path_rate=0.1).cuda()
    average = ModelEmaV3(model, decay=0.9)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    for i in range(6):
        x, y = torch.randn(16, 3, 224, 224, device="cuda"), torch.randint(10, (16,), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        average.update(model)
        print("result", kind, i, float(loss))
    with torch.no_grad():
        print("result", kind, float(average.module.eval()(x).double().sum()))
""",
    )


@case
def peft_lora(suite):
    """peft: LoRA adapters on GPT-2, trained, switched off, merged."""
    trained(
        suite,
        "peft_lora",
        """
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel
config = GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=2000, n_positions=128, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager")
model = get_peft_model(GPT2LMHeadModel(config).cuda(), LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for i in range(8):
    tokens = torch.randint(2000, (8, 128), device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("result", i, float(loss))
model.eval()
with torch.no_grad():
    with model.disable_adapter():
        print("result base", float(model(input_ids=tokens).logits.double().sum()))
    print("result adapted", float(model(input_ids=tokens).logits.double().sum()))
    print("result merged", float(model.merge_and_unload()(input_ids=tokens).logits.double().sum()))
""",
    )


@case
def sentence_embeddings(suite):
    """sentence-transformers: embeddings of batches of many lengths, and a search among them."""
    trained(
        suite,
        "sentence_embeddings",
        """
import random, tempfile
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import semantic_search
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
words = [f"w{i}" for i in range(500)]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
folder = tempfile.mkdtemp()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
                        model_max_length=128).save_pretrained(folder)
BertModel(BertConfig(vocab_size=505, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
                     max_position_embeddings=128)).save_pretrained(folder)
model = SentenceTransformer(folder, device="cuda")
draw = random.Random(0)
sentences = [" ".join(draw.choices(words, k=draw.randint(3, 100))) for _ in range(600)]
found = model.encode(sentences, batch_size=32, convert_to_tensor=True, show_progress_bar=False)
print("result", tuple(found.shape), found.device.type, float(found.double().sum()), float(found.double().abs().sum()))
nearest = semantic_search(found[:20], found, top_k=3)
print("result", [hit["corpus_id"] for hits in nearest for hit in hits])
""",
    )


@case
def torch_geometric_models(suite):
    """torch-geometric: convolutions and attention over batches of random graphs."""
    trained(
        suite,
        "torch_geometric_models",
        """
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool
torch.use_deterministic_algorithms(True, warn_only=True)
draw = torch.Generator().manual_seed(0)
def graph():
    nodes = int(torch.randint(20, 400, (1,), generator=draw))
    return Data(x=torch.randn(nodes, 32, generator=draw), edge_index=torch.randint(nodes, (2, 6 * nodes), generator=draw), y=torch.randint(4, (1,), generator=draw))
graphs = [graph() for _ in range(96)]
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([GCNConv(32, 64), GATConv(64, 16, heads=4), SAGEConv(64, 64)])
        self.out = torch.nn.Linear(64, 4)
    def forward(self, data):
        x = data.x
        for layer in self.layers:
            x = layer(x, data.edge_index).relu()
        return self.out(global_mean_pool(x, data.batch))
net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for i, batch in enumerate(DataLoader(graphs, batch_size=16, pin_memory=True)):
        loss = torch.nn.functional.cross_entropy(net(batch.cuda(non_blocking=True)), batch.y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("result", epoch, i, float(loss))
""",
    )


@case
def onnx_export(suite):
    """torch.onnx.export of a model on the GPU, and the exported model's own results."""
    trained(
        suite,
        "onnx_export",
        """
import io, onnx, onnxruntime
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(1024, 10)).cuda().eval()
x = torch.randn(4, 3, 32, 32, device="cuda")
program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
proto = program.model_proto
onnx.checker.check_model(proto)
session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
(found,) = session.run(None, {session.get_inputs()[0].name: x.cpu().numpy()})
with torch.no_grad():
    expected = model(x).cpu()
print("result", [node.op_type for node in proto.graph.node], float(found.astype("float64").sum()), bool((torch.from_numpy(found) - expected).abs().max() < 1e-4))
""",
    )


@case
def compiled_with_tuning(suite):
    """torch.compile with max-autotune: with the kernels that a native run chose, and with kernels chosen under memprof."""
    text = """
import torch._inductor.config as config
if hasattr(config.test_configs, "max_mm_configs"):  # some 20 kernels for each product would take half a minute to compile
    config.test_configs.max_mm_configs = 4
net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU()).cuda()
# As mode="max-autotune", but for its coordinate descent, which compiles dozens of variants of each kernel one after the other.
compiled = torch.compile(lambda x: net(x).square().mean(), options={"max_autotune": True, "triton.cudagraphs": True})
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(6):
    torch.manual_seed(i)
    torch.compiler.cudagraph_mark_step_begin()
    loss = compiled(torch.randn(256, 512, device="cuda"))
    loss.backward()
    print("result", i, float(loss))
    optimizer.step()
    optimizer.zero_grad()
"""

    def kept_in(folder):
        path = os.path.join(suite.work, folder)
        return START + f"os.environ['TORCHINDUCTOR_CACHE_DIR'] = {path!r}\n" + text

    for folder in ("of-native", "of-recorded"):
        shutil.rmtree(os.path.join(suite.work, folder), ignore_errors=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        tuning = pool.submit(suite.record, "tuned_here", suite.script("tuned_here", kept_in("of-recorded")))
        native = suite.run(suite.script("tuned_before", kept_in("of-native")))
        side_by_side(suite, "compiled_with_tuning", kept_in("of-native") + PEAK)
    directory, recorded = tuning.result()
    suite.verified(directory)
    apart = distance(results(native.stdout), results(recorded.stdout))
    suite.lines.append(f"  {recorded.stderr.count('AUTOTUNE')} products tuned under memprof: losses {apart:.1g} from those of a native run's choice")
    if not apart < 1e-3:
        raise Failed(f"losses differ by {apart:.2g}: native {results(native.stdout)}, tuned under memprof {results(recorded.stdout)}")
