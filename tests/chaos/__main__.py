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
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from penstock.testbed import Testbed
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.invariants import INVARIANTS
from tests.chaos.page import RESULTS, read_results
from tests.chaos.scene import LIMIT_S, NODES, SLOTS, Scene
from tests.survival.scene import now_s

MARK = "PENSTOCK_CHAOS_IS_ISOLATED"
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
#: What the faults of network and disks need, tried on a small file.
PROBE = """set -e; ip link set lo up; iptables -L OUTPUT -n; place=$(mktemp -d)
truncate -s 8M $place/image; mkfs.ext4 -q $place/image; mkdir $place/disk
mount -o loop $place/image $place/disk; umount $place/disk; rm -r $place"""


def say(text: str) -> None:
    print(text, flush=True)


def next_fault(names: Sequence[str], seed: int, done: Sequence[str]) -> str:
    """The kind that is due: in each round all kinds once, in an order that the seed gives.

    >>> next_fault(["a", "b", "c"], 1, []), next_fault(["a", "b", "c"], 1, ["b", "a"])
    ('b', 'c')
    """
    counts = Counter(done)
    turn = min(counts[name] for name in names)
    due = [name for name in names if counts[name] == turn]
    return min(due, key=lambda name: Random(f"{seed} {turn} {name}").random())


def chosen(parts: str, is_isolated: bool) -> list[str]:
    """The kinds of these parts: groups or single kinds, all if there are none."""
    wanted = set(filter(None, parts.split(",")))
    known = {each.group for each in FAULTS.values()} | set(FAULTS)
    if unknown := sorted(wanted - known):
        raise ValueError(f"there is no part {unknown[0]!r}: {', '.join(sorted(known))}")
    found = [
        name
        for name, each in FAULTS.items()
        if (not wanted or {name, each.group} & wanted) and (is_isolated or not each.needs_root)
    ]
    if not found:
        raise ValueError("these faults need the right to make namespaces")
    return found


def play(scene: Scene, fault: Fault, seed: int) -> dict[str, Any]:
    """One fault, and all that must hold after it."""
    begun, broke, settled_s = scene.begin(), [], 0.0
    try:
        if not fault.moves_load:
            scene.another_load()
        scene.settle(LIMIT_S)
        fault.run(scene)
    except Exception as error:
        broke.append(f"expected: {_words(error)}")
    healed_s = now_s()
    for check in INVARIANTS:
        try:
            broke += [f"{check.__name__}: {text}" for text in check(scene, fault)]
        except Exception as error:
            broke.append(f"{check.__name__}: {_words(error)}")
        settled_s = settled_s or now_s() - healed_s
    rescales = scene.statuses[-1]["rescales"] - (0 if fault.restarts else begun["rescales"])
    return {
        "fault": fault.name,
        "seed": seed,
        "seconds": round(now_s() - scene.began_at_s),
        "settled_s": round(settled_s, 1),
        "records": scene.feed.sent - begun["sent"],
        "rescales": max(0, rescales),
        "kills": fault.kills,
        "outages": int(fault.is_outage),
        "broke": broke,
    }


def _words(error: Exception) -> str:
    is_plain = isinstance(error, AssertionError | TimeoutError)
    return str(error) if is_plain and str(error) else f"{type(error).__name__}: {error}"


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
                scene = scene or Scene(bed, place, rng)
                past = [x for x in read_results(options.results) if x["seed"] == options.seed]
                fault = FAULTS[next_fault(names, options.seed, [x["fault"] for x in past])]
                result = play(scene, fault, options.seed)
                with options.results.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                _tell(result)
                if result["broke"]:  # what comes next begins with a job that is whole
                    broken += 1
                    say((place / "driver.log").read_text()[-2000:])
                    scene.close()
                    scene = None
        finally:
            if scene is not None:
                scene.close()
    return broken


def _tell(result: dict[str, Any]) -> None:
    outcome = "BROKE" if result["broke"] else "held"
    say(
        f"{outcome:6}{result['fault']:28}{result['seconds']:4} s, settled after "
        f"{result['settled_s']:5.1f} s, {result['rescales']} rescales, {result['records']} records"
    )
    for text in result["broke"]:
        say(f"      {text}")


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
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(journal)],
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
