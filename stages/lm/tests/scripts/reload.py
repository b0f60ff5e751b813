"""Loads a folder that this crate wrote with transformers and compares logits.

    python tests/scripts/reload.py WRITTEN [ORIGINAL]

ORIGINAL is a folder, or a GGUF file; its logits must be the same to 1e-6 (f32). Without it the
folder must only load, with every tensor in place. Run by tests/writing.rs when
LM_REFERENCE_PYTHON names a Python with transformers.
"""

import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM


def load(path):
    path = pathlib.Path(path)
    kwargs = {}
    if path.suffix == ".gguf":
        path, kwargs = path.parent, {"gguf_file": path.name}
    model, report = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, output_loading_info=True, **kwargs
    )
    problems = {key: value for key, value in report.items() if value and key != "error_msgs"}
    assert not problems and not report.get("error_msgs"), report
    return model.eval()


torch.manual_seed(0)
written = load(sys.argv[1])
tied = written.config.tie_word_embeddings
shared = written.get_input_embeddings().weight.data_ptr() == written.get_output_embeddings().weight.data_ptr()
assert tied == shared, "tie flag and tensors disagree"
if len(sys.argv) > 2:
    original = load(sys.argv[2])
    ids = torch.randint(0, written.config.vocab_size, (2, 50))
    with torch.no_grad():
        difference = (written(ids).logits - original(ids).logits).abs().max().item()
    assert difference < 1e-6, difference
print("same")
