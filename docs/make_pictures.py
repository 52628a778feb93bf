"""Draw the pictures of the first page and of concepts.md: python docs/make_pictures.py

Each is an SVG on a light card of its own, so that it reads the same on light and dark pages.
"""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INK, PALE, LINE, CARD = "#1c2333", "#5b6478", "#b9c0ce", "#f7f8fb"
COLOURS = ("#c7d7f7", "#f9d9b8", "#c9e7cd", "#eccfe6", "#f6eaa9", "#c5e6ea", "#ddd3f3", "#f5cdcd")
"""Fills on which ink can be read, one for each of eight devices."""
BLUE, RED, GREEN = "#2f5fc4", "#c0392b", "#2b7a3b"


class Picture:
    """An SVG of a size, to which shapes are added."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" font-family="system-ui, sans-serif" font-size="14">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="{PALE}"/></marker></defs>',
        ]
        self.box(0.5, 0.5, width - 1, height - 1, CARD, radius=10)

    def box(self, x: float, y: float, w: float, h: float, fill: str, label: str = "", radius: float = 3) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius:g}" fill="{fill}" stroke="{LINE}"/>'
        )
        if label:
            self.text(x + w / 2, y + h / 2 + 5, label, anchor="middle")

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, bold: bool = False,
        code: bool = False, size: int = 14,
    ) -> None:  # fmt: skip
        style = ' font-weight="600"' if bold else ""
        style += ' font-family="ui-monospace, monospace"' if code else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}" font-size="{size}"{style}>'
            f"{escape(words)}</text>"
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{PALE}" stroke-width="1.6" '
            'marker-end="url(#head)"/>'
        )

    def path(self, points: Sequence[tuple[float, float]], colour: str, dashed: bool = False) -> None:
        listed = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{listed}" fill="none" stroke="{colour}" stroke-width="2.5" '
            f'stroke-linejoin="round"{dash}/>'
        )

    def grid(self, x: float, y: float, cell: tuple[float, float], fills: Sequence[Sequence[tuple[str, str]]]) -> None:
        """Cells with (fill, label), row by row."""
        for row, cells in enumerate(fills):
            for column, (fill, label) in enumerate(cells):
                self.box(x + column * cell[0], y + row * cell[1], *cell, fill, label, radius=0)

    def svg(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def overview() -> str:
    p = Picture(860, 250, "What you state, what autoshard decides, what you get")
    columns = [
        ("You state", "a function and its shapes; a mesh:  data=2, model=4; a machine:  tpu_v5e; pins, limits, groups"),
        ("autoshard decides", "traces, runs nothing; prices all placements; solves for the cheapest; proves a bound"),
        (
            "You get",
            "a sharding for every tensor; seconds and bytes; a gap, with a certificate; a function that runs so",
        ),
    ]
    for column, (head, lines) in enumerate(columns):
        x = 20 + 290 * column
        p.box(x, 20, 240, 210, "#ffffff", radius=8)
        p.text(x + 120, 48, head, anchor="middle", bold=True, size=16)
        for k, line in enumerate(lines.split("; ")):
            p.box(x + 14, 66 + 39 * k, 212, 30, COLOURS[column], line)
    p.arrow(264, 125, 306, 125)
    p.arrow(554, 125, 596, 125)
    return p.svg()


def mesh() -> str:
    p = Picture(560, 220, "A mesh of eight devices with the axes data of size 2 and model of size 4")
    for d in range(2):
        for m in range(4):
            k = 4 * d + m
            p.box(120 + 100 * m, 70 + 65 * d, 84, 50, COLOURS[k], f"device {k}", radius=8)
    p.arrow(120, 45, 500, 45)
    p.text(310, 35, 'axis "model", size 4', anchor="middle", bold=True)
    p.arrow(95, 75, 95, 185)
    p.text(88, 120, 'axis "data"', anchor="end", bold=True, size=13)
    p.text(88, 138, "size 2", anchor="end", bold=True, size=13)
    words = "a group along model: 0 1 2 3, or 4 5 6 7;  along data: 0 4, 1 5, 2 6, 3 7"
    p.text(310, 206, words, anchor="middle", colour=PALE, size=12)
    return p.svg()


def sharding() -> str:
    p = Picture(860, 260, "Three shardings of a matrix on a mesh of data=2 and model=4")
    cases: list[tuple[str, Callable[[int, int], tuple[int, ...]], str]] = [
        ('[{"data"}, {}]', lambda r, c: tuple(range(4 * (r // 2), 4 * (r // 2) + 4)), "half of the rows each"),
        ('[{"data"}, {"model"}]', lambda r, c: (4 * (r // 2) + c,), "an eighth each"),
        ('[{}, {"model"}]', lambda r, c: (c, c + 4), "a quarter of the columns each"),
    ]
    for k, (name, held, words) in enumerate(cases):
        x = 30 + 280 * k
        p.text(x + 120, 38, name, anchor="middle", code=True)
        cells = []
        for r in range(4):
            row = []
            for c in range(4):
                devices = held(r, c)
                label = f"{devices[0]}-{devices[-1]}" if len(devices) == 4 else " ".join(map(str, devices))
                row.append((COLOURS[devices[0]], label))
            cells.append(row)
        p.grid(x, 55, (60, 38), cells)
        p.text(x + 120, 232, words, anchor="middle", colour=PALE)
    p.text(430, 252, "numbers: the devices that hold a part", anchor="middle", colour=PALE, size=12)
    return p.svg()


def factors() -> str:
    p = Picture(860, 250, "The factors of a matrix product and what cutting each of them means")
    for x, name, (rows, columns) in ((30, "x", ("i", "k")), (190, "w", ("k", "j")), (370, "y", ("i", "j"))):
        tall, wide = (110 if rows == "i" else 80), (110 if columns == "k" and name == "x" else 90)
        p.box(x + 25, 60, wide, tall, "#ffffff", name)
        p.text(x + 14, 60 + tall / 2, rows, bold=True, colour=BLUE if rows == "i" else RED, anchor="middle")
        p.text(x + 25 + wide / 2, 52, columns, bold=True, anchor="middle", colour=RED if columns == "k" else GREEN)
    p.text(176, 110, "@", bold=True, anchor="middle")
    p.text(346, 110, "=", bold=True, anchor="middle")
    p.text(30, 222, "y[i, j] = sum over k of x[i, k] * w[k, j]", code=True, size=13)
    for y, colour, head, words in (
        (66, BLUE, "an axis on i", "cuts the rows of x and of y; w is whole"),
        (122, GREEN, "an axis on j", "cuts the columns of w and of y; x is whole"),
        (178, RED, "an axis on k", "cuts x and w; y is a partial sum on each device"),
    ):
        p.text(520, y, head, bold=True, colour=colour)
        p.text(520, y + 20, words, size=13)
    return p.svg()


def partial_sums() -> str:
    p = Picture(860, 270, "A partial sum on four devices, and two ways to finish it")
    p.text(130, 34, "unreduced over model", anchor="middle", bold=True)
    for k in range(4):
        p.box(30 + 52 * k, 50, 44, 150, COLOURS[k])
        for r in range(4):
            p.text(52 + 52 * k, 78 + 36 * r, "part", anchor="middle", size=12)
    p.text(130, 226, "each device holds all rows,", anchor="middle", size=12, colour=PALE)
    p.text(130, 242, "but a part of every sum", anchor="middle", size=12, colour=PALE)
    p.arrow(250, 90, 330, 70)
    p.arrow(250, 160, 330, 185)
    for x, y, head, words, whole in (
        (350, 20, "all-reduce", "every device holds every sum", True),
        (350, 145, "reduce-scatter", "every device holds a quarter of the sums", False),
    ):
        p.text(x, y + 20, head, bold=True)
        for k in range(4):
            for r in range(4):
                mine = whole or r == k
                p.box(x + 52 * k, y + 30 + 17 * r, 44, 17, COLOURS[k] if mine else "#ffffff", radius=0)
        p.text(x + 230, y + 60, words, size=13)
    p.text(580, 100, "sends about twice as many bytes: it is a", size=12, colour=PALE)
    p.text(580, 116, "reduce-scatter, then an all-gather", size=12, colour=PALE)
    p.text(580, 226, "a later all-gather may never be needed", size=12, colour=PALE)
    return p.svg()


def stages() -> str:
    p = Picture(860, 200, "Stages in the order of priorities, and the joint optimum")
    for k, (head, lines) in enumerate((
        ("stage 0", ["statements of priority 0", "cheapest plan under them"]),
        ("stage 1", ["placements kept", "+ statements of priority 1"]),
        ("stage 2", ["placements kept", "+ statements of priority 2"]),
    )):  # fmt: skip
        x = 20 + 210 * k
        p.box(x, 30, 180, 90, COLOURS[k], radius=8)
        p.text(x + 90, 54, head, anchor="middle", bold=True)
        for n, line in enumerate(lines):
            p.text(x + 90, 78 + 20 * n, line, anchor="middle", size=12)
        if k:
            p.arrow(x - 27, 75, x - 3, 75)
    p.box(660, 30, 180, 90, "#ffffff", radius=8)
    p.text(750, 54, "joint", anchor="middle", bold=True)
    p.text(750, 78, "all statements at once", anchor="middle", size=12)
    p.text(750, 98, "never dearer", anchor="middle", size=12)
    words = "the cost never falls from stage to stage: the difference is the price of a stage"
    p.text(310, 152, words, anchor="middle", size=13, colour=PALE)
    p.text(430, 178, "all statements hold in the end, and so does the memory limit", anchor="middle", size=13)
    return p.svg()


def gap() -> str:
    p = Picture(860, 270, "The cost of the best plan falls and the bound rises; what is between them is the gap")
    p.path([(80, 30), (80, 220), (600, 220)], LINE)
    p.path([(90, 50), (150, 50), (150, 85), (230, 85), (230, 112), (360, 112), (360, 125), (590, 125)], BLUE)
    p.path([(90, 210), (140, 185), (220, 160), (330, 146), (450, 138), (590, 133)], RED)
    p.text(335, 245, "time of the search", anchor="middle", colour=PALE)
    p.text(72, 45, "cost", anchor="end", colour=PALE)
    p.text(620, 110, "best plan so far", bold=True, colour=BLUE)
    p.text(620, 128, "what it costs", size=12)
    p.text(620, 160, "proved lower bound", bold=True, colour=RED)
    p.text(620, 178, "nothing costs less", size=12)
    p.text(620, 215, "gap = (cost - bound) / cost", code=True, size=13)
    p.text(620, 235, "gap 0: the plan is optimal", size=12)
    return p.svg()


def memory() -> str:
    p = Picture(860, 270, "Bytes held on one device over a train step, with its peak and the limit")
    p.path([(80, 30), (80, 220), (600, 220)], LINE)
    p.box(82, 170, 516, 49, COLOURS[0], "arguments: weights, moments, batch", radius=0)
    held = [0, 20, 38, 56, 74, 92, 84, 66, 70, 48, 52, 28, 30, 12]
    for k, size in enumerate(held):
        p.box(84 + 36.6 * k, 170 - size, 36, size, COLOURS[1] if k < 6 else COLOURS[2], radius=0)
    p.path([(80, 60), (598, 60)], RED, dashed=True)
    p.text(606, 64, "memory_limit", code=True, size=13, colour=RED)
    p.text(285, 72, "peak", anchor="middle", bold=True, size=13)
    p.text(170, 245, "forward: results are kept", anchor="middle", size=12, colour=PALE)
    p.text(450, 245, "backward: they are freed, gradients come", anchor="middle", size=12, colour=PALE)
    p.text(72, 45, "bytes", anchor="end", colour=PALE)
    p.text(620, 130, "the limit holds at", size=13)
    p.text(620, 148, "every point of the program", size=13)
    p.text(620, 186, "a copy of a reshard counts,", size=13)
    p.text(620, 204, "too, as long as it lives", size=13)
    return p.svg()


PICTURES = (overview, mesh, sharding, factors, partial_sums, stages, gap, memory)


def pictures() -> dict[str, str]:
    """File name -> SVG."""
    return {f"{draw.__name__}.svg": draw() for draw in PICTURES}


def main() -> None:
    (FOLDER / "pictures").mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / "pictures" / name).write_text(text)


if __name__ == "__main__":
    main()
