# A Trainer of an adapter on a frozen model, with activation checkpointing.
import sys

import peft
import torch
import transformers

config = transformers.GPT2Config(
    vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2, use_cache=False)
torch.manual_seed(1)
model = peft.get_peft_model(transformers.GPT2LMHeadModel(config), peft.LoraConfig(target_modules=["c_attn"], r=2, lora_dropout=0.0, fan_in_fan_out=True))
if "inputs" in sys.argv:
    model.enable_input_require_grads()
args = transformers.TrainingArguments(
    "out", per_device_train_batch_size=4, max_steps=2, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, learning_rate=0.5, optim="sgd",
    gradient_checkpointing="checkpoint" in sys.argv)
rows = [{"input_ids": torch.arange(i, i + 8), "labels": torch.arange(i, i + 8)} for i in range(8)]
transformers.Trainer(model, args, train_dataset=rows, data_collator=transformers.default_data_collator).train()
print("kwargs", args.gradient_checkpointing_kwargs)
print("weights", *("%.9g" % float(p.detach().double().abs().sum()) for p in model.parameters() if p.requires_grad))
