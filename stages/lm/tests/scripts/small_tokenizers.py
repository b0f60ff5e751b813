"""Writes tests/fixtures/tokenizers: small tokenizers and the ids that `tokenizers` gives.

    pip install transformers tokenizers
    python tests/scripts/small_tokenizers.py             (tokenizers 0.23.3, transformers 5.24.0)

`qwen2` and `llama3` have the normalizer, pre-tokenizer, special tokens and post-processor of
those families over 600 tokens learnt from the text below; `strip` has special tokens that
swallow white space. In cases.json, `plain` is encoding with split_special_tokens (what a user's
text gets), `special` without (what a template's text gets), `full` with the tokens that the
post-processor adds; `decoded` is the text of `special` with special tokens left out.
"""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).parent.parent / "fixtures" / "tokenizers"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [
    "Please reason step by step, and put your final answer within \\boxed{}.\n\n",
    "What is the sum of 12 and 345? The answer is 357. It's what we'd expect, isn't it?",
    "Question: A train travels 60 miles in 1.5 hours. Answer: 40 miles per hour.\nuser\nassistant\nsystem\n",
    "def f(x):\n    return x ** 2  # square\n\n\t\tif x < 0: raise ValueError('negative')\n",
    "Let $x^2 + 2x + 1 = 0$. Then $(x+1)^2 = 0$, so $x = \\frac{-1}{1}$.",
    "Été à la plage, naïve café; 漢字とかな; Привет, мир; αβγ; 😀🎉",
]
TEXTS = CORPUS + [
    "",
    " ",
    "\n\n\n  leading and trailing  \n",
    "e\u0301 composed by NFC: \u00e9",
    "1234567890 3.14159 1,000,000",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "ends with <|im_end|>",
    "<|im_end|>",
    "<|im_<|im_end|>|im_end|> <|im_start",
    "a tool: <tool_call>\n{\"name\": 1}\n</tool_call>",
    "a  <mask>  b<mask>c  <sep>  d",
    "\u0000\u0007 control, \ufeff mark, \u200b zero width, \ufdd0 noncharacter, \ud7ff",
    "🧑‍🚀 family 👨‍👩‍👧 flags 🇩🇪",
    "x" * 300,
]


def train(specials, pre, normalizer=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_special_tokens(specials)
    return tokenizer


def split(digits):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN.replace("DIGITS", digits)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    chatml = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    qwen2 = train(chatml, split(r"\p{N}"), normalizers.NFC())
    qwen2.add_tokens([AddedToken(t, special=False, normalized=False) for t in ("<tool_call>", "</tool_call>")])
    qwen2.post_processor = processors.ByteLevel(trim_offsets=False)

    llama3 = train(["<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<|im_end|>|"], split(r"\p{N}{1,3}"))
    bos = llama3.token_to_id("<|begin_of_text|>")
    llama3.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                special_tokens=[("<|begin_of_text|>", bos)],
            ),
        ]
    )
    strip = train(
        [AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<sep>", rstrip=True, normalized=False)],
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    )
    cases = {}
    for name, tokenizer in {"qwen2": qwen2, "llama3": llama3, "strip": strip}.items():
        tokenizer.save(str(OUT / f"{name}.json"), pretty=False)
        cases[name] = []
        for text in TEXTS:
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = False
            special = tokenizer.encode(text, add_special_tokens=False).ids
            full = tokenizer.encode(text).ids
            cases[name].append(
                {"text": text, "plain": plain, "special": special, "full": full, "decoded": tokenizer.decode(special)}
            )
    (OUT / "cases.json").write_text(json.dumps(cases, ensure_ascii=True) + "\n")
    print({k: Tokenizer.from_file(str(OUT / f"{k}.json")).get_vocab_size() for k in cases})


main()
