from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.report.charts import (
    CORRECTED,
    MAX_MARKERS,
    OBSERVED,
    BarGroup,
    Bars,
    Chart,
    ChartAxis,
    ChartScale,
    Curve,
    CurvePoint,
    Curves,
    Forest,
    ForestGroup,
    ForestRow,
    Heatmap,
    MatrixImage,
    default_look,
)
from unskew.report.svg import (
    NARROW,
    WIDE,
    Drawing,
    draw_chart,
    draw_content,
    element,
    escape_text,
    fit_text,
    make_mark,
)

finite = st.floats(-1e6, 1e6, allow_nan=False)


def text_of(drawing: Drawing) -> str:
    return "".join(drawing.content)


def numbers(pattern: str, drawing: Drawing) -> list[float]:
    return [float(found) for found in re.findall(pattern, text_of(drawing))]


# Scales


def test_a_scale_is_linear_or_logarithmic_and_cuts_off() -> None:
    assert [ChartScale(0, 10, 100, 200)(value) for value in (0, 5, 10, 99)] == [100, 150, 200, 200]
    assert [
        ChartScale(1, 100, 0, 200, is_log=True)(value) for value in (1, 10, 100, 0)
    ] == pytest.approx([0, 100, 200, 0])


@given(low=finite, reach=st.floats(1e-3, 1e6), most=st.integers(2, 12))
def test_ticks_are_evenly_spaced_inside_and_no_more_than_asked_for(
    low: float, reach: float, most: int
) -> None:
    scale = ChartScale(low, low + reach, 0, 1)
    ticks = scale.ticks(most)
    steps = [after - before for before, after in pairwise(ticks)]

    assert len(ticks) <= most + 1
    assert all(scale.low - 1e-6 * reach <= tick <= scale.high + 1e-6 * reach for tick in ticks)
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-3) if steps else True


@given(low=st.floats(1e-6, 1e3), ratio=st.floats(1.5, 1e6), most=st.integers(3, 10))
def test_logarithmic_ticks_lie_inside(low: float, ratio: float, most: int) -> None:
    ticks = ChartScale(low, low * ratio, 0, 1, is_log=True).ticks(most)

    assert 1 <= len(ticks) <= most
    assert ticks == sorted(ticks)
    assert all(low * 0.999 <= tick <= low * ratio * 1.001 for tick in ticks)


def test_ticks_by_hand() -> None:
    assert ChartScale(0.1, 1.05, 0, 1).ticks(5) == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert ChartScale(1, 1000, 0, 1, is_log=True).ticks(3) == [1, 100]
    assert ChartScale(1, 20, 0, 1, is_log=True).ticks(5) == [1, 2, 5, 10, 20]


def test_a_scale_leaves_room_around_what_it_shows_even_one_value() -> None:
    for values in ([2.0], [0.0], [1.0, 3.0], [math.nan, 1.0], []):
        scale = ChartScale.around(values, 0, 1)
        assert scale.low < scale.high
        assert all(scale.low < value < scale.high for value in values if math.isfinite(value))


# Markup


@given(st.text())
def test_no_text_gets_out_of_its_element(text: str) -> None:
    drawn = element("g", {"class": text}, escape_text(text), make_mark(text))

    assert drawn.count("<") == drawn.count(">") == 6
    assert re.fullmatch(
        r'<g class="[^"<>]*">[^<>]*<g class="mark"><title>[^<>]*</title></g></g>', drawn, re.DOTALL
    )


def test_a_chart_is_drawn_for_wide_and_narrow_pages_and_described_by_its_marks() -> None:
    row = ForestRow("r", 1.0, CORRECTED, "x: 1 & 2")
    drawn = draw_chart(Chart("A <title>", Forest([ForestGroup("", (row,))], ChartAxis(""))))

    assert [width for width, _ in drawn] == ["wide", "narrow"]
    for (_, svg), width in zip(drawn, (WIDE, NARROW), strict=True):
        assert f'viewBox="0 0 {width:g} 60"' in svg
        assert "A &lt;title&gt;</title>" in svg
        assert "x: 1 &amp; 2</desc>" in svg


def test_what_has_no_room_is_shortened() -> None:
    assert fit_text("short", 200) == "short"
    assert fit_text("a very long name of a model", 80).endswith("…")
    assert len(fit_text("a very long name of a model", 80)) < 14


# Forest


def forest(width: float) -> Drawing:
    row = ForestRow("r", 5.0, CORRECTED, "tip", 4.0, 6.0, "5 [4, 6]")
    axis = ChartAxis("", low=0.0, high=10.0)
    return draw_content(Forest([ForestGroup("", (row,), truth=5.0)], axis), width)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_an_estimate_lies_amid_its_interval_and_on_the_truth(width: float) -> None:
    drawing = forest(width)
    (point,) = numbers(r'<circle cx="([\d.]+)"', drawing)
    whisker = re.search(
        r'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)" y2="[\d.]+" class="accent whisker"',
        text_of(drawing),
    )
    truth = re.search(r'<line x1="([\d.]+)"[^>]*class="truth rule"', text_of(drawing))

    assert whisker is not None
    assert truth is not None
    assert point == pytest.approx((float(whisker[1]) + float(whisker[2])) / 2, abs=0.02)
    assert float(truth[1]) == pytest.approx(point, abs=0.02)
    assert "5 [4, 6]" in text_of(drawing)


def test_on_a_narrow_page_numbers_lie_above_their_marks() -> None:
    def heights(width: float) -> tuple[float, float]:
        text = text_of(forest(width))
        number = re.search(r'<text x="[\d.]+" y="([\d.]+)" class="number', text)
        point = re.search(r'<circle cx="[\d.]+" cy="([\d.]+)"', text)
        assert number is not None
        assert point is not None
        return float(number[1]), float(point[1])

    number, point = heights(WIDE)
    assert number == pytest.approx(point + 4.5)
    number, point = heights(NARROW)
    assert number < point - 9


# Curves, bars and shades


def curves(n: int, *, is_log: bool = False) -> Drawing:
    points = tuple(CurvePoint(float(k), float(k), f"p{k}", k - 0.5, k + 0.5) for k in range(n))
    axes = (ChartAxis(name, is_log=is_log) for name in "xy")
    return draw_content(Curves([Curve(default_look(0), points)], *axes), WIDE)


def test_a_long_line_has_few_points_to_point_at() -> None:
    assert text_of(curves(10)).count('class="mark"') == 10
    assert text_of(curves(500)).count('class="mark"') <= MAX_MARKERS


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show() -> None:
    assert text_of(curves(10, is_log=True)).count('class="mark"') == 9


def test_a_curve_without_points_is_no_error() -> None:
    assert 'class="mark"' not in text_of(
        draw_content(Curves([Curve(OBSERVED, ())], ChartAxis("x"), ChartAxis("y")), NARROW)
    )


def test_bars_are_as_high_as_their_shares() -> None:
    bins = [BarGroup("1", (0.2, 0.4), "t"), BarGroup("2", (0.8, 0.6), "u")]
    heights = numbers(
        r'height="([\d.]+)" rx="[\d.]+" class="\w+ bar"',
        draw_content(Bars(bins, ("seen", "accent"), "x", "y"), WIDE),
    )

    assert [height / heights[0] for height in heights] == pytest.approx([1, 2, 4, 3], abs=0.01)


def test_shades_go_by_rank_and_the_best_is_outlined() -> None:
    values = [[1.0, 100.0], [2.0, 3.0]]
    names = [["", ""], ["", ""]]
    heatmap = Heatmap(["a", "b"], ["c", "d"], values, names, names, "x", "y", (0, 0))
    drawn = text_of(draw_content(heatmap, WIDE))

    assert re.findall(r'class="heat (h\d+)"', drawn) == ["h10", "h2", "h8", "h5"]
    assert drawn.count('class="best"') == 1


def test_equal_neighbours_of_a_matrix_are_one_box() -> None:
    matrix = MatrixImage([[1, 1, 5], [5, 5, 5]], 1, 5, [1, 5])

    assert text_of(draw_content(matrix, NARROW)).count("<rect") == 3
