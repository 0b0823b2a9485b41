"""The parameters of least loss: looked for at random where it is least, then step by step."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Parameters = dict[str, float]
#: Of each parameter: where the search starts, its first step, and the bounds.
Space = dict[str, tuple[float, float, float, float]]

#: How often the steps of a search are halved, and the least gain that is worth a step.
_HALVINGS = 3
_LEAST_GAIN = 0.002
#: Places tried in the first round, within that many steps, and in each of the further rounds; how
#: many of them count as good.
_FIRST_PLACES = 160
_REACH = 2.0
_PLACES = 48
ROUNDS = 10
_GOOD = 12
_INERTIA = 0.3  #: How much of a round's spread is that of the round before.


def search(space: Space, loss: Callable[[Parameters], float], rounds: int = ROUNDS) -> Parameters:
    """Try random places, the same each time, then go down from the best of them step by step.

    Parameters depend on each other (more capacity with more contention does nearly the same), so
    each round is drawn from the normal distribution of the good places of the last one.

    >>> valley = {"x": (0.0, 1.0, -9.0, 9.0), "y": (0.0, 1.0, -9.0, 9.0)}
    >>> found = search(valley, lambda v: (v["x"] - v["y"]) ** 2 + abs(v["x"] - 3) / 9)
    >>> round(found["x"], 1), round(found["y"], 1)
    (3.0, 3.0)
    """
    rng = np.random.default_rng(1)
    start, step, low, high = (np.array(column) for column in zip(*space.values(), strict=True))
    middle, spread = start, np.diag((_REACH * step) ** 2)
    tried = [(loss(_named(space, start)), start)]
    for round_ in range(rounds + 1):
        count = _PLACES if round_ else _FIRST_PLACES
        places = np.clip(rng.multivariate_normal(middle, spread, size=count), low, high)
        found = [(loss(_named(space, place)), place) for place in places]
        found.sort(key=lambda pair: pair[0])
        tried.append(found[0])
        good = np.array([place for _, place in found[:_GOOD]])
        middle = good.mean(axis=0)
        spread = _INERTIA * spread + (1.0 - _INERTIA) * np.cov(good.T)
    best = _named(space, min(tried, key=lambda pair: pair[0])[1])
    return descend(space, loss, around=best)


def _named(space: Space, place: NDArray[np.float64]) -> Parameters:
    return dict(zip(space, place.tolist(), strict=True))


def descend(
    space: Space,
    loss: Callable[[Parameters], float],
    halvings: int = _HALVINGS,
    least_gain: float = _LEAST_GAIN,
    around: Parameters | None = None,
) -> Parameters:
    """The parameters of least loss: step along each axis while that helps, then halve the steps.

    It starts where the space says in whole steps, or `around` a place in half of them.

    >>> found = descend({"x": (0.0, 0.8, -5.0, 5.0)}, lambda v: abs(v["x"] - 2.0))
    >>> round(found["x"], 1)
    2.0
    """
    best = around or {name: start for name, (start, _, _, _) in space.items()}
    least = loss(best)
    steps = {name: step / 2.0 if around else step for name, (_, step, _, _) in space.items()}
    for _ in range(halvings + 1):
        improved = True
        while improved:
            improved = False
            for name, (_, _, low, high) in space.items():
                for sign in (1.0, -1.0):
                    moved = min(max(best[name] + sign * steps[name], low), high)
                    if moved == best[name]:
                        continue
                    tried = {**best, name: moved}
                    if (value := loss(tried)) < least * (1.0 - least_gain):
                        best, least, improved = tried, value, True
                        break
        steps = {name: step / 2.0 for name, step in steps.items()}
    return best
