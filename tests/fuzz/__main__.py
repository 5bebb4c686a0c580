"""python -m tests.fuzz --programs N [--seed S] [--jobs J] [--plant NAME] [--generator NAME] |
--replay FILE"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import time

# code with planted defects must not be found again by anybody
os.environ["TETRAD_CACHE_DIR"] = "off"

from tests.fuzz.check import check
from tests.fuzz.generators import GENERATORS, failures, run_all
from tests.fuzz.plants import PLANTS
from tests.fuzz.workers import campaign


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.fuzz", description="random programs, compiled and compared"
    )
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument(
        "--seed", type=int, help="of the first program; by default one that was never used"
    )
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument(
        "--plant",
        choices=sorted(PLANTS),
        help="break the compiler on purpose: the fuzzer must notice",
    )
    parser.add_argument(
        "--generator",
        choices=("programs", *GENERATORS),
        help="only this one; by default all in turn",
    )
    parser.add_argument("--stop-at", type=int, default=5, help="failures after which to stop")
    parser.add_argument("--replay", metavar="FILE", help="check one saved program instead")
    options = parser.parse_args()
    if options.replay:
        wrong = check(runpy.run_path(options.replay)["PROGRAM"])
        print(wrong or "right")
        return 0 if wrong is None else 1
    first = int(time.time() * 1000) % 1_000_000_000 * 1000 if options.seed is None else options.seed
    print(f"{options.generator or 'programs'}, {options.programs} from seed {first}", flush=True)
    if options.generator in GENERATORS:
        found = list(failures(options.generator, range(first, first + options.programs)))
        print("\n".join(found) or "right")
        return 1 if found else 0
    plant = PLANTS[options.plant] if options.plant else None
    report = campaign(range(first, first + options.programs), options.jobs, plant, options.stop_at)
    print(report.text, flush=True)
    others = 0 if options.plant or options.generator else run_all(options.programs, first)
    return 1 if report.failures or others else 0


if __name__ == "__main__":
    sys.exit(main())
