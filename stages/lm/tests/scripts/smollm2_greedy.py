"""Writes tests/fixtures/smollm2/greedy.json: what transformers' greedy decoding makes of ten prompts
with the dequantised weights of SmolLM2-135M-Instruct.Q4_1.gguf, in f32 on a CPU.

    pip install torch transformers gguf sentencepiece
    python tests/scripts/smollm2_greedy.py FOLDER/SmolLM2-135M-Instruct.Q4_1.gguf

The weights (98 MB) are not kept here; `tests/smollm2.rs` looks for them in LM_SMOLLM2_GGUF.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = [
    "What is the capital of France?",
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
    "How many clips did Natalia sell altogether in April and May?",
    "Write a haiku about the sea.",
    "Explain in two sentences why the sky is blue.",
    "List three prime numbers greater than 20.",
    "Translate 'good morning' into Spanish, German and Italian.",
    "A train travels 120 miles in 2 hours. What is its average speed?",
    "def fibonacci(n):",
    "Give me a recipe for pancakes.",
    "Who wrote 'Pride and Prejudice', and when was it published?",
]
NEW_TOKENS = 64
STOP = 2  # <|im_end|>


@torch.no_grad()
def main(file):
    file = pathlib.Path(file)
    source = dict(pretrained_model_name_or_path=file.parent, gguf_file=file.name)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    cases = []
    for prompt in PROMPTS:
        text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        out = model.generate(
            torch.tensor([ids]),
            do_sample=False,
            repetition_penalty=1.0,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=STOP,
            pad_token_id=STOP,
            return_dict_in_generate=True,
            output_scores=True,
        )
        margins = [(s[0].topk(2).values[0] - s[0].topk(2).values[1]).item() for s in out.scores]
        greedy = out.sequences[0, len(ids):].tolist()
        logprobs = [s[0].log_softmax(-1)[t].item() for s, t in zip(out.scores, greedy)]
        cases.append({"text": text, "prompt": ids, "greedy": greedy, "margin": min(margins),
                      "logprobs": [round(p, 6) for p in logprobs], "decoded": tokenizer.decode(greedy)})
        print(min(margins), tokenizer.decode(greedy)[:100].replace("\n", " "))
    path = pathlib.Path(__file__).parent.parent / "fixtures" / "smollm2" / "greedy.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cases, indent=1) + "\n")


main(sys.argv[1])
