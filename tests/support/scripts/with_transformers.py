"""A training with transformers' Trainer."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
model = BertForSequenceClassification(BertConfig(vocab_size=1000, **sizes))
tokens = torch.randint(1000, (4000, 32))
data = [{"input_ids": each, "labels": int(each[0]) % 2} for each in tokens]
arguments = TrainingArguments(
    "checkpoints",
    per_device_train_batch_size=int(sys.argv[1]),
    num_train_epochs=100,
    use_cpu=True,
    report_to=[],
    save_steps=50,
    disable_tqdm=True,
)
Trainer(model, arguments, train_dataset=data).train()
