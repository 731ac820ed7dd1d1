import argparse
import os

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sums(Dataset):
    """Sequences of small numbers; the label is whether the first is larger than the second."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randint(2, 12, (count, 4), generator=generator)
        self.labels = (self.inputs[:, 0] > self.inputs[:, 1]).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.inputs[index], "labels": self.labels[index]}


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--train_batch_size", type=int, default=32)
parser.add_argument("--learning_rate", type=float, default=5e-5)
parser.add_argument("--output-data-dir", default=os.environ["SM_OUTPUT_DATA_DIR"])
parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
args, _ = parser.parse_known_args()

torch.manual_seed(0)
size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=16, max_position_embeddings=8, num_labels=2, **size))
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=os.path.join(args.output_data_dir, "checkpoints"),
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.train_batch_size,
        learning_rate=args.learning_rate,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=20,
    ),
    train_dataset=Sums(1024, 0),
    eval_dataset=Sums(256, 1),
)
trainer.train()
print(trainer.evaluate())
trainer.save_model(args.model_dir)
