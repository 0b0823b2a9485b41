"""``make chaos``: breaks a running job in one way after the other, and checks it after each.

    python -m tests.chaos --minutes 60 --seed 1 --parts executor,broker

The kinds of faults are in `faults`, what must hold after each is in `invariants`. The order comes
from the seed: in each round all kinds once. Each finished fault is a line of the results, and a
later run goes on with the kinds that have the fewest. The exit code is 1 if anything broke.

It runs in namespaces of its own, so that it may cut its network and mount its disks, and so that
nothing is left when it is killed. Without the right to make these it leaves some kinds out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from penstock.testbed import Testbed
from tests.chaos.faults import FAULTS
from tests.chaos.page import RESULTS, read_results
from tests.chaos.play import chosen, line_of, next_fault, play
from tests.chaos.scene import NODES, SLOTS, Scene
from tests.survival.scene import now_s

MARK = "PENSTOCK_CHAOS_IS_ISOLATED"
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
#: What the faults of network and disks need, tried on a small file.
PROBE = """set -e; ip link set lo up; iptables -L OUTPUT -n; place=$(mktemp -d)
truncate -s 8M $place/image; mkfs.ext4 -q $place/image; mkdir $place/disk
mount -o loop $place/image $place/disk; umount $place/disk; rm -r $place"""


def say(text: str) -> None:
    print(text, flush=True)


def run(options: argparse.Namespace, is_isolated: bool) -> int:
    """Play faults until the time is over; how many broke something."""
    names = chosen(options.parts, is_isolated)
    until_s, broken = now_s() + 60.0 * options.minutes, 0
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-chaos-")))
        stack.enter_context(_disks(place, is_isolated))
        bed = stack.enter_context(Testbed(SLOTS, place / "bed", nodes=NODES))
        rng, scene = Random(options.seed), None
        try:
            while now_s() < until_s:
                past = [x for x in read_results(options.results) if x["seed"] == options.seed]
                done = [each["fault"] for each in past]
                name = next_fault(names, options.seed, done, options.rounds)
                if name is None:
                    break
                scene = scene or Scene(bed, place, rng)
                result = play(scene, FAULTS[name], options.seed)
                with options.results.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                say(line_of(result))
                if result["broke"]:  # what comes next begins with a job that is whole
                    broken += 1
                    _say_more(scene, place / "driver.log")
                    scene.close()
                    scene = None
        finally:
            if scene is not None:
                scene.close()
    return broken


def _say_more(scene: Scene, log: Path) -> None:
    """What Penstock logged and decided, and the end of the driver's own log."""
    with suppress(AssertionError):
        for level, text in scene.log():
            say(f"      {level.lower()}: {text}")
        say(f"      last: {scene.status()['last']}")
    say(log.read_text()[-1000:])


@contextmanager
def _disks(place: Path, is_isolated: bool) -> Iterator[None]:
    """A small disk for the journal, and one for the checkpoint that can be frozen."""
    journal, checkpoint, image = place / "journal", place / "checkpoint", place / "image"
    for folder in (journal, checkpoint):
        folder.mkdir()
    if not is_isolated:
        yield
        return
    with image.open("wb") as file:
        file.truncate(512 * 1024 * 1024)
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(journal)],
        ["mkfs.ext4", "-q", str(image)],
        ["mount", "-o", "loop", str(image), str(checkpoint)],
    ):
        subprocess.run(command, check=True)
    try:
        yield
    finally:
        for folder in (journal, checkpoint):
            subprocess.run(["umount", "-l", str(folder)], check=True)


def isolate() -> bool:
    """Start again in namespaces of its own, if that is possible; true if it is there already."""
    if MARK in os.environ:
        return True
    try:
        can = subprocess.run([*UNSHARE, "sh", "-c", PROBE], capture_output=True).returncode == 0
    except FileNotFoundError:
        can = False
    if can:
        os.environ[MARK] = "1"
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, "-m", "tests.chaos", *sys.argv[1:]])
    say("faults of disks and of the network are left out: no right to make namespaces and mounts")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="no fault begins later")
    parser.add_argument("--seed", type=int, default=1, help="the order of faults and loads")
    parser.add_argument("--parts", default="", help="groups or kinds of faults, with commas")
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="runs of each kind")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a line for each fault")
    options = parser.parse_args()
    try:
        chosen(options.parts, is_isolated=True)
        is_isolated = isolate()
        return min(1, run(options, is_isolated))
    except ValueError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
