"""Lines of metrics: increases per second are those of the time in which they grew, whatever the
steps of a chart, and distributions are their mean.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.time import SECOND, TimeRange, to_instant
from lakebed.web.charting.rates import Growth, draw_rates
from lakebed.web.charting.series import Point, choose_aggregation, find_begin, plan_lines
from lakebed.web.times import Bins, plan_bins

BEGIN = to_instant("2026-11-15T12:00:00Z")
STEPS = (10, 30, 60, 120, 600)


def point(
    at: float, value: float, *, series: str = "a", label: str = "all", start: float | None = None
) -> Point:
    begun = None if start is None else int(BEGIN + start * SECOND) * 1000
    return Point(int(BEGIN + at * SECOND), series, label, begun, value)


def draw(
    points: list[Point], step: int, *, seconds: int = 1200, is_cumulative: bool = True
) -> dict[str, dict[float, float]]:
    """Of each line the values, by the seconds at which their steps begin."""
    within = TimeRange(BEGIN, BEGIN + seconds * SECOND)
    bins = Bins(BEGIN, step * SECOND, -(-seconds // step))
    lines = plan_lines(points, bins, within, "rate", is_cumulative=is_cumulative)
    return {
        line.name: {n * step: value for n, value in enumerate(line.values) if value is not None}
        for line in lines
    }


def test_counters_are_taken_apart() -> None:
    def counted(points: list[Point]) -> dict[float, float]:
        return {at: 60 * value for at, value in draw(points, 60)["all"].items()}

    grown = [point(0, 100), point(60, 107), point(120, 110)]
    assert counted(grown) == pytest.approx({0: 7, 60: 3})
    assert counted(list(reversed(grown))) == counted(grown)
    restarted = [point(0, 100), point(60, 107), point(120, 4, start=60)]
    assert counted(restarted) == pytest.approx({0: 7, 60: 4})
    fallen = [point(0, 100), point(60, 2)]  # a restart that did not say so
    assert counted(fallen) == pytest.approx({0: 2})
    new = [point(60, 5, start=0)]
    assert counted(new) == pytest.approx({0: 5})
    both = [*grown, *(point(at, 10 * at, series="b") for at in (0, 60, 120))]
    assert counted(both) == pytest.approx({0: 607, 60: 603})


@pytest.mark.parametrize("step", STEPS)
def test_a_steady_counter_has_one_rate_whatever_the_step(step: int) -> None:
    every_minute = [point(at, at, start=0) for at in range(60, 1150, 60)]
    drawn = draw(every_minute, step)["all"]
    assert drawn.keys() == {at for at in range(0, 1200, step) if at < 1140}
    assert list(drawn.values()) == pytest.approx([1.0] * len(drawn))
    unknown_start = [point(at, 7000 + at) for at in range(25, 1150, 60)]
    drawn = draw(unknown_start, step)["all"]
    assert list(drawn.values()) == pytest.approx([1.0] * len(drawn))


@pytest.mark.parametrize("step", STEPS)
def test_deltas_are_of_their_own_time(step: int) -> None:
    deltas = [point(at, 60, start=at - 60) for at in range(60, 1150, 60)]
    drawn = draw(deltas, step, is_cumulative=False)["all"]
    assert list(drawn.values()) == pytest.approx([1.0] * len(drawn))
    without_start = [point(at, 60) for at in range(60, 1150, 60)]
    drawn = draw(without_start, step, is_cumulative=False)["all"]
    later = [value for at, value in drawn.items() if at >= 60]
    assert later == pytest.approx([1.0] * len(later))


def test_silence_between_deltas_adds_nothing() -> None:
    sparse = [point(at, 6, start=at - 10) for at in (10, 610, 1200)]
    assert draw(sparse, 600, is_cumulative=False)["all"] == pytest.approx({0: 0.01, 600: 0.02})


@pytest.mark.parametrize("step", STEPS)
def test_series_heard_of_at_different_moments_are_added(step: int) -> None:
    several = [
        point(at + offset, 5000 + at * (offset + 1), series=str(offset), start=-9000)
        for offset in (0, 20, 45)
        for at in range(0, 1100, 60)
    ]
    drawn = draw(several, step)["all"]
    assert list(drawn.values()) == pytest.approx([1 + 21 + 46] * len(drawn))
    split = [Point(each.time, each.series, each.series, each.start, each.value) for each in several]
    for offset, line in draw(split, step).items():
        assert list(line.values()) == pytest.approx([int(offset) + 1] * len(line))


def test_a_series_that_ended_is_not_taken_to_go_on() -> None:
    ended = [point(at, at, series="ended") for at in range(0, 301, 60)]
    going_on = [point(at, at, series="on") for at in range(0, 901, 60)]
    drawn = draw([*ended, *going_on], 60)["all"]
    assert drawn == pytest.approx({at: 2.0 if at < 300 else 1.0 for at in range(0, 900, 60)})


def test_a_series_that_began_late_was_not_there_before() -> None:
    old = [point(at, at) for at in range(0, 301, 60)]
    new = [point(at, 2 * (at - 30), series="new", start=30) for at in (60, 120, 180, 240, 300)]
    drawn = draw([*old, *new], 30)["all"]
    assert drawn == pytest.approx({at: 1.0 if at < 30 else 3.0 for at in range(0, 300, 30)})


def test_after_a_restart_it_counts_from_the_new_start() -> None:
    first = [point(at, at, start=0) for at in (60, 120)]
    second = [point(at, at - 150, start=150) for at in (180, 240)]
    assert draw([*first, *second], 60)["all"] == pytest.approx(
        dict.fromkeys((0, 60, 120, 180), 1.0)
    )
    silent = [point(at, at) for at in (0, 60, 120)] + [point(at, at - 120) for at in (180, 240)]
    assert draw(silent, 30)["all"] == pytest.approx(dict.fromkeys(range(0, 240, 30), 1.0))


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 1000)), min_size=1, max_size=20),
    st.sampled_from(STEPS),
)
def test_spreading_loses_nothing(steps: list[tuple[int, int]], width: int) -> None:
    growths, at = [], BEGIN
    for seconds, amount in steps:
        growths.append(Growth("all", "a", at, at + seconds * SECOND, amount))
        at += seconds * SECOND
    bins = Bins(BEGIN, width * SECOND, -(-(at - BEGIN) // (width * SECOND)))
    (line,) = draw_rates(growths, bins, is_cumulative=True)
    total = sum(
        (value or 0) * (min(at, bins.begin_of(number + 1)) - bins.begin_of(number)) / SECOND
        for number, value in enumerate(line.values)
    )
    assert total == pytest.approx(sum(amount for _, amount in steps))


def test_a_chart_of_increases_begins_where_the_first_one_does() -> None:
    within = TimeRange(BEGIN, BEGIN + 3600 * SECOND)
    young = [point(at, at - 1740, start=1740) for at in (1800, 1860)]
    assert find_begin(young, within, "rate") == BEGIN + 1740 * SECOND
    assert find_begin(young, within, "value") == BEGIN + 1800 * SECOND
    old = [point(at, at, start=-500) for at in (1800, 1860)]
    assert find_begin(old, within, "rate") == BEGIN + 1800 * SECOND
    bins = plan_bins(TimeRange(find_begin(young, within, "rate"), within.end), 60)
    (line,) = plan_lines(young, bins, within, "rate", is_cumulative=True)
    assert line.values[0] == pytest.approx(1.0)


def test_distributions_are_their_mean() -> None:
    within = TimeRange(BEGIN, BEGIN + 600 * SECOND)
    bins = plan_bins(within, 12)
    points = [
        Point(BEGIN, "a", "all", 0, None, 10, 100),
        Point(BEGIN + 60 * SECOND, "a", "all", 0, None, 14, 180),
    ]
    (line,) = plan_lines(points, bins, within, "mean", is_cumulative=True)
    assert [each for each in line.values if each is not None] == [20]
    (line,) = plan_lines(points, bins, within, "mean", is_cumulative=False)
    assert [each for each in line.values if each is not None] == [10, 180 / 14]
    (line,) = plan_lines(points, bins, within, "rate", is_cumulative=True)
    assert [each for each in line.values if each is not None] == pytest.approx([4 / 60])
    assert [
        choose_aggregation("gauge", None),
        choose_aggregation("sum", True),
        choose_aggregation("sum", False),
    ] == [
        "value",
        "rate",
        "value",
    ]
