"""Try several learning rates at once: one job each, then a table of what came out.

Run it in this folder: `python3 param_sweep.py`.
"""

from monkeycli import MonkeyCLI

learning_rates = ["0.01", "0.02", "0.03", "0.05", "0.1", "0.12"]
epochs = ["15"]

jobs = []
for rate in learning_rates:
    for epoch in epochs:
        monkey = MonkeyCLI()
        job = monkey.run(f"python -u mnist.py --learning-rate {rate} --n-epochs {epoch}")
        jobs.append((rate, epoch, job))

print("{:>13}  {:>6}  {:>9}  {}".format("learning rate", "epochs", "accuracy", "state"))
for rate, epoch, job in jobs:
    job.wait()
    found = [line.split()[1] for line in job.logs().splitlines() if line.startswith("accuracy ")]
    print("{:>13}  {:>6}  {:>9}  {}".format(rate, epoch, found[-1] if found else "-", job.state))
