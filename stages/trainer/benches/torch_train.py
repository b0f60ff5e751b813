"""What torch and transformers take for the updates that `pipeline bench train` measures.

    python3 torch_train.py --shape qwen2.5-7b --method bias --rows 8 --seq 1152 [--recompute]

Random weights of the real shape on the device, bf16, SDPA attention, logits by `chunk` rows of the
loss as `transformers` computes them whole. One JSON line: milliseconds per update (forward, backward,
AdamW), the median of `--repeat` after `--warm-up`; peak gigabytes as torch's allocator reserved them.
"""

import argparse
import json
import time

import torch
import transformers

SHAPES = {
    "qwen2.5-7b": dict(
        vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
        num_attention_heads=28, num_key_value_heads=4, max_position_embeddings=32768, tie_word_embeddings=False),
    "qwen2.5-0.5b": dict(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=True),
    "smollm2-135m": dict(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True),
    "tiny": dict(
        vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True),
}


def build(args, dtype):
    sizes = SHAPES[args.shape]
    config = (transformers.LlamaConfig if args.shape.startswith("smol") else transformers.Qwen2Config)(**sizes)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(dtype)
    with torch.device(args.device):
        model = transformers.AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    return model


def adapt(model, args):
    if args.method == "full":
        return list(model.parameters())
    model.requires_grad_(False)
    if args.method == "bias":
        biases = []
        for layer in model.model.layers:
            down = layer.mlp.down_proj
            down.bias = torch.nn.Parameter(torch.zeros(down.out_features, dtype=down.weight.dtype, device=args.device))
            biases.append(down.bias)
        return biases
    factors = []
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, linear in list(part.named_children()):
                if isinstance(linear, torch.nn.Linear):
                    lora = Lora(linear, args.rank)
                    setattr(part, name, lora)
                    factors += [lora.a, lora.b]
    return factors


class Lora(torch.nn.Module):
    """y = Wx + B(Ax), as PEFT computes it with alpha = rank and no dropout."""

    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        like = dict(dtype=linear.weight.dtype, device=linear.weight.device)
        self.a = torch.nn.Parameter(torch.randn(rank, linear.in_features, **like) * 0.02)
        self.b = torch.nn.Parameter(torch.zeros(linear.out_features, rank, **like))

    def forward(self, x):
        return self.linear(x) + torch.nn.functional.linear(torch.nn.functional.linear(x, self.a), self.b)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="smollm2-135m", choices=SHAPES)
    parser.add_argument("--method", default="lora", choices=["bias", "lora", "full"])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    model = build(args, torch.bfloat16 if cuda else torch.float32)
    model.train()
    parameters = adapt(model, args)
    if args.recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, fused=cuda)
    micro = args.micro_batch or args.rows
    times = []
    for update in range(args.warm_up + args.repeat):
        ids = torch.randint(0, model.config.vocab_size, (args.rows, args.seq), device=args.device)
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for rows in ids.split(micro):
            loss = model(input_ids=rows, labels=rows, use_cache=False).loss
            (loss * (len(rows) / args.rows)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    counted = sorted(times[args.warm_up:])
    median = counted[len(counted) // 2]
    print(json.dumps({
        "with": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "shape": args.shape, "method": args.method, "rows": args.rows, "seq": args.seq,
        "micro_batch": micro, "recompute": args.recompute,
        "milliseconds": median * 1e3, "tokens_per_second": args.rows * args.seq / median,
        "peak_gigabytes": torch.cuda.max_memory_reserved() / 1e9 if cuda else None,
    }), flush=True)


main()
