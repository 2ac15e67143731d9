"""Train a small neural network on scikit-learn's handwritten digits, with numpy alone.

Prints loss and accuracy for each epoch, keeps a checkpoint and the losses in the output folder, and goes on from the
checkpoint when it is started again. Nothing in here knows of Monkey beyond two environment variables, both optional:
MONKEY_OUTPUT (where results go, else ./output) and MONKEY_NUM_CPUS (how many threads to use, else 1).
"""

from __future__ import annotations

import argparse
import gzip
import os
import signal
import sys
from pathlib import Path


def _threads() -> str:
    try:
        return str(max(1, int(float(os.environ.get("MONKEY_NUM_CPUS", "1")))))
    except ValueError:
        return "1"


# numpy's BLAS reads these when it is loaded; by itself it would start a thread for every CPU of the machine.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, _threads())

import numpy as np  # noqa: E402

DATA = Path(__file__).resolve().parent / "data"
CLASSES = 10
PIXEL_MAX = 16.0
BATCH = 32
MOMENTUM = 0.5
EXIT_SIGTERM = 128 + signal.SIGTERM


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (rows of 64 values in 0..1) and labels (0..9) of data/<name>.csv.gz."""
    with gzip.open(DATA / f"{name}.csv.gz", "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    return table[:, :-1] / PIXEL_MAX, table[:, -1]


def start_weights(hidden: int, seed: int) -> dict[str, np.ndarray]:
    """He initialisation for one hidden layer, Glorot for the output."""
    rng = np.random.default_rng(seed)
    pixels = 64
    return {
        "w1": rng.normal(0.0, np.sqrt(2.0 / pixels), (pixels, hidden)),
        "b1": np.zeros(hidden),
        "w2": rng.normal(0.0, np.sqrt(1.0 / hidden), (hidden, CLASSES)),
        "b2": np.zeros(CLASSES),
    }


def forward(weights: dict[str, np.ndarray], images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden layer's activations and the probability of each class."""
    hidden = np.maximum(images @ weights["w1"] + weights["b1"], 0.0)
    logits = hidden @ weights["w2"] + weights["b2"]
    logits -= logits.max(axis=1, keepdims=True)
    odds = np.exp(logits)
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def train_epoch(
    weights: dict[str, np.ndarray],
    speed: dict[str, np.ndarray],
    pictures: tuple[np.ndarray, np.ndarray],
    rate: float,
    rng: np.random.Generator,
) -> float:
    """One pass of gradient descent with momentum over shuffled minibatches; changes `weights` and `speed`.

    Returns the mean cross-entropy of the pass.
    """
    images, labels = pictures
    order = rng.permutation(len(labels))
    total = 0.0
    for start in range(0, len(order), BATCH):
        picked = order[start : start + BATCH]
        batch, truth = images[picked], labels[picked]
        hidden, odds = forward(weights, batch)
        rows = np.arange(len(picked))
        total -= np.log(np.maximum(odds[rows, truth], 1e-12)).sum()
        error = odds
        error[rows, truth] -= 1.0
        error /= len(picked)
        back = (error @ weights["w2"].T) * (hidden > 0.0)
        slopes = {"w1": batch.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ error, "b2": error.sum(axis=0)}
        for key, slope in slopes.items():
            speed[key] = MOMENTUM * speed[key] - rate * slope
            weights[key] += speed[key]
    return float(total / len(order))


def accuracy(weights: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray) -> float:
    """The share of images that get their own label."""
    return float((forward(weights, images)[1].argmax(axis=1) == labels).mean())


def save(folder: Path, settings: np.ndarray, state: dict[str, np.ndarray], history: np.ndarray) -> None:
    """Write checkpoint.npz and losses.csv, each whole or not at all: whoever reads meanwhile sees the last epoch's."""
    temporary = folder / ".checkpoint.tmp"
    with temporary.open("wb") as out:
        np.savez(out, settings=settings, history=history, **state)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(folder / "checkpoint.npz")
    lines = [f"{n},{loss:.6f},{right:.6f}" for n, (loss, right) in enumerate(history, 1)]
    temporary = folder / ".losses.tmp"
    temporary.write_text("\n".join(["epoch,loss,accuracy", *lines]) + "\n", encoding="ascii")
    temporary.replace(folder / "losses.csv")


def arguments() -> argparse.Namespace:
    """The command line; a mistake ends the program with code 2 and one line, as argparse does."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--learning-rate", type=float, default=0.14, help="step size (default: 0.14)")
    parser.add_argument("--n-epochs", type=int, default=15, help="passes over the data (default: 15)")
    parser.add_argument("--hidden", type=int, default=48, help="neurons in the hidden layer (default: 48)")
    parser.add_argument("--seed", type=int, default=0, help="start of all randomness (default: 0)")
    options = parser.parse_args()
    if not options.learning_rate > 0:
        parser.error("--learning-rate: expected a number above 0")
    for name in ("n_epochs", "hidden"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected a number of at least 1")
    if options.seed < 0:
        parser.error("--seed: expected a number of at least 0")
    return options


def main() -> int:
    """Train, and return the exit code: 0, or 143 when SIGTERM asked to stop."""
    asked_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked_to_stop.append(number))
    options = arguments()
    folder = Path(os.environ.get("MONKEY_OUTPUT") or "output")
    folder.mkdir(parents=True, exist_ok=True)

    train, test = load("train"), load("test")
    settings = np.array([options.learning_rate, options.hidden, options.seed], dtype=np.float64)
    weights = start_weights(options.hidden, options.seed)
    speed = {key: np.zeros_like(value) for key, value in weights.items()}
    history = np.empty((0, 2))

    checkpoint = folder / "checkpoint.npz"
    if checkpoint.exists():
        with np.load(checkpoint) as saved:
            if np.array_equal(saved["settings"], settings):
                weights = {key: saved[key] for key in weights}
                speed = {key: saved[f"speed_{key}"] for key in weights}
                history = saved["history"]
                if len(history) < options.n_epochs:
                    print(f"going on from the checkpoint after epoch {len(history)}", flush=True)
            else:
                print("the checkpoint was made with other settings: starting from nothing", flush=True)
    if len(history) >= options.n_epochs:
        print(f"nothing to do: the checkpoint has {len(history)} epochs, {options.n_epochs} were asked for", flush=True)

    for epoch in range(len(history) + 1, options.n_epochs + 1):
        # Seeded by the epoch, so that a run that was interrupted ends with the very same numbers.
        loss = train_epoch(weights, speed, train, options.learning_rate, np.random.default_rng([options.seed, epoch]))
        right = accuracy(weights, *test)
        history = np.vstack([history, [loss, right]])
        print(f"epoch {epoch}/{options.n_epochs} loss {loss:.4f} accuracy {right:.4f}", flush=True)
        save(folder, settings, {**weights, **{f"speed_{key}": value for key, value in speed.items()}}, history)
        if asked_to_stop and epoch < options.n_epochs:
            print(f"asked to stop: the checkpoint after epoch {epoch} is written", flush=True)
            return EXIT_SIGTERM

    print(f"accuracy {history[-1][1]:.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
