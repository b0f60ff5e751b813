"""Loads folders that this crate wrote with transformers and compares logits.

    python tests/scripts/reload.py WRITTEN[=ORIGINAL]...

ORIGINAL is a folder; its logits must be the same to 1e-6 (f32). Without it the folder must only
load, with every tensor in place. Run by tests/writing.rs when LM_REFERENCE_PYTHON names a Python
with transformers.
"""

import sys

import torch
from transformers import AutoModelForCausalLM


def load(path):
    model, report = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True)
    problems = {key: value for key, value in report.items() if value}
    assert not problems, (path, report)
    return model.eval()


torch.manual_seed(0)
for argument in sys.argv[1:]:
    folder, _, source = argument.partition("=")
    written = load(folder)
    tied = written.config.tie_word_embeddings
    shared = written.get_input_embeddings().weight.data_ptr() == written.get_output_embeddings().weight.data_ptr()
    assert tied == shared, (folder, "tie flag and tensors disagree")
    if source:
        ids = torch.randint(0, written.config.vocab_size, (2, 50))
        with torch.no_grad():
            difference = (written(ids).logits - load(source)(ids).logits).abs().max().item()
        assert difference < 1e-6, (folder, source, difference)
print("same", len(sys.argv) - 1)
