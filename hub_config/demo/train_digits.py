"""Train a small neural network on scikit-learn's handwritten digits, one epoch at a time.

It reports progress and loss, keeps a checkpoint after each epoch, and starts from that
checkpoint when it runs again; so it may be stopped at any moment.
"""

import argparse
import json
import os
import pickle
from pathlib import Path

import gpupool_job as job
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=80)
parser.add_argument("--hidden", type=int, default=1024)
options = parser.parse_args()

digits = load_digits()
pixels = digits.data / 16.0
train_x, test_x, train_y, test_y = train_test_split(pixels, digits.target, test_size=0.25, random_state=0)

checkpoint = Path(job.checkpoint_dir()) / "model.pkl"
if checkpoint.exists():
    model, first = pickle.loads(checkpoint.read_bytes())
    print(f"resuming after epoch {first}", flush=True)
else:
    layers = (options.hidden, options.hidden)
    model, first = MLPClassifier(layers, learning_rate_init=2e-4, random_state=0), 0

for epoch in range(first + 1, options.epochs + 1):
    model.partial_fit(train_x, train_y, classes=range(10))
    loss = round(float(model.loss_), 4)
    accuracy = round(float(model.score(test_x, test_y)), 4)
    print(f"epoch {epoch:3d}/{options.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}", flush=True)
    job.progress(epoch / options.epochs, loss=loss, accuracy=accuracy)
    beside = checkpoint.with_suffix(".new")
    beside.write_bytes(pickle.dumps((model, epoch)))
    beside.replace(checkpoint)
    if job.should_stop():
        print("asked to stop: the checkpoint is saved", flush=True)
        raise SystemExit(143)

out = Path(os.environ.get("GPUPOOL_OUT_DIR", "."))
(out / "result.json").write_text(json.dumps({"epochs": options.epochs, "loss": loss, "accuracy": accuracy}))
print(f"done: accuracy {accuracy:.4f} on {len(test_y)} digits never seen in training", flush=True)
