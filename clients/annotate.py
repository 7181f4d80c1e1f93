"""One picture of judged parts: each photo enlarged in a grid, with its boxes, its verdict and its label.

For people to look at; nothing is computed from it. Pillow is imported here only when a picture is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

    Font = FreeTypeFont | ImageFont

CLASS_NAMES = ("ok", "scratch", "pit", "stain")
ENLARGE = 2
COLUMNS = 6
_MARGIN, _GAP, _FRAME = 28, 18, 4
_HEADER_HEIGHT, _CAPTION_HEIGHT = 84, 46
_BACKGROUND, _INK, _FAINT = "#14171c", "#f2f4f7", "#9aa4b2"
_OK_COLOR, _NG_COLOR, _WRONG_COLOR = "#2fbf71", "#ef4a4a", "#f5a524"
# Told apart from each other, from grey photos and from the frames, also with red-green blindness.
_CLASS_COLORS = ("#9aa4b2", "#36c5ff", "#ffd23f", "#e879f9")


@dataclass(frozen=True, slots=True)
class Part:
    """One judged part.

    Args:
        file: its name, for the caption.
        picture: the photo's file, or its pixels (height, width) or (height, width, 3) uint8.
        verdict: "OK" or "NG", what came back.
        label: "OK" or "NG", the truth; "" when it is not known.
        boxes: rows of x0, y0, x1, y1 in pixels of the photo, class number, score.
    """

    file: str
    picture: Path | NDArray[np.uint8]
    verdict: str
    label: str
    boxes: Sequence[Sequence[float]] | NDArray[np.float32] = ()


def annotate_parts(parts: Sequence[Part], path: Path, *, class_names: Sequence[str] = CLASS_NAMES) -> None:
    """Write a PNG of all *parts* to *path*.

    Args:
        parts: at least one; in reading order.
        path: the file to write; an old one is replaced.
        class_names: of the boxes' class numbers, for the legend; number 0 is "no defect" and has no colour there.

    Raises:
        ConfigError: Pillow is not installed.
        OSError: a photo cannot be read, or *path* not written.
    """
    image_module, draw_module, font_module = _pillow()
    photos = [_photo(image_module, part) for part in parts]
    cell = (max(photo.width for photo in photos), max(photo.height for photo in photos))
    columns = min(COLUMNS, len(parts))
    rows = -(-len(parts) // columns)
    pitch = (cell[0] + 2 * _FRAME + _GAP, cell[1] + 2 * _FRAME + _CAPTION_HEIGHT + _GAP)
    size = (2 * _MARGIN + columns * pitch[0] - _GAP, _MARGIN + _HEADER_HEIGHT + rows * pitch[1] - _GAP + _MARGIN // 2)
    sheet = image_module.new("RGB", size, _BACKGROUND)
    draw = draw_module.Draw(sheet)
    fonts = {points: font_module.load_default(points) for points in (13, 17, 26)}
    _draw_header(draw, parts, class_names, fonts)
    for index, (part, photo) in enumerate(zip(parts, photos, strict=True)):
        row, column = divmod(index, columns)
        corner = (_MARGIN + column * pitch[0], _MARGIN + _HEADER_HEIGHT + row * pitch[1])
        sheet.paste(photo, (corner[0] + _FRAME, corner[1] + _FRAME))
        _draw_part(draw, part, corner=corner, photo_size=photo.size, fonts=fonts)
    sheet.save(path, format="PNG")


def _pillow() -> tuple[Any, Any, Any]:
    """Import Pillow's parts."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise ConfigError(f"the annotated picture needs Pillow ({error}): pip install 'slotline[cpu]'") from error
    return Image, ImageDraw, ImageFont


def _photo(image_module: Any, part: Part) -> Image:
    """Return a part's photo in colour, enlarged without blurring the pixels the model saw."""
    picture = part.picture
    opened = image_module.fromarray(picture) if isinstance(picture, np.ndarray) else image_module.open(picture)
    with opened as photo:
        size = (photo.width * ENLARGE, photo.height * ENLARGE)
        enlarged: Image = photo.convert("RGB").resize(size, image_module.Resampling.NEAREST)
        return enlarged


def _draw_header(draw: ImageDraw, parts: Sequence[Part], class_names: Sequence[str], fonts: dict[int, Font]) -> None:
    """Draw the title with the count of right verdicts, and the legend of frames and boxes."""
    known = [part for part in parts if part.label]
    right = sum(part.verdict == part.label for part in known)
    title = f"{len(parts)} parts" + (f", {right} of {len(known)} verdicts right" if known else "")
    draw.text((_MARGIN, _MARGIN - 6), title, _INK, fonts[26])
    legend = [("verdict OK", _OK_COLOR), ("verdict NG", _NG_COLOR), ("differs from label", _WRONG_COLOR)]
    legend += [(name, _class_color(number)) for number, name in enumerate(class_names) if number > 0]
    left = float(_MARGIN)
    for text, color in legend:
        top = _MARGIN + 38
        draw.rectangle((left, top, left + 16, top + 16), outline=color, width=4)
        draw.text((left + 24, top + 8), text, _INK, fonts[17], anchor="lm")
        left += 24 + draw.textlength(text, fonts[17]) + 26


def _draw_part(
    draw: ImageDraw, part: Part, *, corner: tuple[int, int], photo_size: tuple[int, int], fonts: dict[int, Font]
) -> None:
    """Draw frame, boxes and caption of one part whose frame's corner is *corner*."""
    left, top = corner
    right, bottom = left + photo_size[0] + 2 * _FRAME, top + photo_size[1] + 2 * _FRAME
    color = _OK_COLOR if part.verdict == "OK" else _NG_COLOR
    draw.rectangle((left, top, right - 1, bottom - 1), outline=color, width=_FRAME)
    is_wrong = part.label not in ("", part.verdict)
    if is_wrong:
        draw.rectangle((left - 6, top - 6, right + 5, bottom + 5), outline=_WRONG_COLOR, width=3)
    # The surest last, so that its score is not covered by another's.
    for box in sorted(part.boxes, key=lambda box: float(box[5])):
        _draw_box(draw, box, origin=(left + _FRAME, top + _FRAME), limit=photo_size, font=fonts[13])
    draw.text((left, bottom + 8), part.file, _FAINT, fonts[13])
    draw.text((left, bottom + 24), f"verdict {part.verdict}", color, fonts[17])
    if part.label:
        text = f"but label {part.label}" if is_wrong else f"label {part.label}"
        draw.text((right - 1, bottom + 24), text, _WRONG_COLOR if is_wrong else _FAINT, fonts[17], anchor="ra")


def _draw_box(
    draw: ImageDraw, box: Sequence[float] | NDArray[np.float32], *, origin: tuple[int, int], limit: tuple[int, int], font: Font
) -> None:
    """Draw one box in its class's colour, a dark line around it so that it shows on any photo, and its score."""
    x0, y0, x1, y1 = (float(edge) * ENLARGE for edge in box[:4])
    color = _class_color(int(box[4]))
    left, top = origin[0] + max(x0, 0.0), origin[1] + max(y0, 0.0)
    right, bottom = origin[0] + min(x1, limit[0]) - 1, origin[1] + min(y1, limit[1]) - 1
    draw.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=_BACKGROUND, width=1)
    draw.rectangle((left, top, right, bottom), outline=color, width=2)
    text = f"{float(box[5]):.2f}"
    width = draw.textlength(text, font) + 6
    tag_left = min(left, origin[0] + limit[0] - width)
    tag_top = top - 16 if top - 16 >= origin[1] else min(bottom + 1, origin[1] + limit[1] - 16)
    draw.rectangle((tag_left, tag_top, tag_left + width, tag_top + 15), fill=color)
    draw.text((tag_left + width / 2, tag_top + 8), text, _BACKGROUND, font, anchor="mm")


def _class_color(number: int) -> str:
    """Return the colour of a class's boxes."""
    return _CLASS_COLORS[number % len(_CLASS_COLORS)]
