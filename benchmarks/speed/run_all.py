"""Measure the whole table, one script after the other, and print it.

python benchmarks/speed/run_all.py [--minutes 25] [--threads 1] [-o DIR]
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# What share of the time each script gets.
SHARES = {"training": 0.55, "attention": 0.05, "decoding": 0.3, "memory": 0.1}


def main() -> None:
    """Run the scripts and print the table of what they wrote."""
    parser = argparse.ArgumentParser(description="the whole table")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=HERE.parent / "results")
    chosen = parser.parse_args()
    written = []
    for name, share in SHARES.items():
        script = "memory.py" if name == "memory" else f"{name}_speed.py"
        result = chosen.output / f"speed_{name}.json"
        settings = ["--threads", str(chosen.threads), "--minutes", str(chosen.minutes * share), "-o", str(result)]
        print(f"{script}:", flush=True)
        subprocess.run([sys.executable, str(HERE / script), *settings], check=True)
        written.append(str(result))
    subprocess.run([sys.executable, str(HERE / "table.py"), *written], check=True)


if __name__ == "__main__":
    main()
