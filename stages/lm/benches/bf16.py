"""How far bf16 is from f32, for the engine and for `transformers`: log-probabilities (nats) of the tokens
that the engine generated in bf16, each as that program has them in bf16, against `transformers` in f32.

    python stages/lm/benches/bf16.py target/release/pipeline SmolLM2-135M-Instruct.Q4_1.gguf test.jsonl

The engine's are those that it returned while it generated: through its cache and in its batches. Those of
`transformers` come from one forward pass over each whole text.
"""

import argparse
import json
import pathlib
import tempfile

import torch
from gsm8k import export, ours
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.no_grad()
def logprobs(folder, dtype, device, texts):
    """Of every token after the prompt; `texts` are pairs of prompt and answer."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to(device).eval()
    out = []
    for prompt, answer in texts:
        ids = torch.tensor([prompt + answer], device=device)
        logits = model(ids).logits[0, len(prompt) - 1:-1].float()
        out.append(logits.log_softmax(-1).gather(1, ids[0, len(prompt):, None])[:, 0].cpu())
    return torch.cat(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("questions", type=pathlib.Path, help="JSON lines with a question each")
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    questions = [" ".join(json.loads(line)["question"].split()) for line in args.questions.open()][:args.limit]
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        folder = export(args.binary, args.gguf, work)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        rows, *_ = ours(args.binary, folder, questions, "bf16", args.device, args, work)
        chat = lambda q: tokenizer.apply_chat_template(
            [{"role": "user", "content": q}], add_generation_prompt=True, tokenize=False)
        prompts = [tokenizer(chat(q), add_special_tokens=False)["input_ids"] for q in questions]
        texts = [(prompt, row["ids"]) for prompt, row in zip(prompts, rows)]
        device = args.device.replace("cuda:0", "cuda")
        exact = logprobs(folder, torch.float32, device, texts)
        found = {
            "engine": torch.tensor([value for row in rows for value in row["logprobs"]]),
            "transformers": logprobs(folder, torch.bfloat16, device, texts),
        }
        for name, values in found.items():
            apart = (values - exact).abs()
            print(json.dumps({
                "bf16": name, "tokens": len(apart), "mean": round(apart.mean().item(), 5),
                "rms": round(apart.square().mean().sqrt().item(), 5), "worst": round(apart.max().item(), 4),
            }), flush=True)


if __name__ == "__main__":
    main()
