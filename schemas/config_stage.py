"""What one stage of a lane runs, and what a user's function writes: fields of the stage tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.config_rules import GIB, MIB, NAME, Rule, about, number_list, one_of, text, whole, whole_list
from schemas.tensors import MAX_RANK, DType

# The slot header holds the descriptors of this many tensors.
MAX_OUTPUTS = 8
# A size above 2^31 - 1 fits no region and no image; the product is checked again in bytes when the slot is sized.
MAX_DIM = (1 << 31) - 1
# The stages in the order in which a request passes them; a lane without a model has no infer stage.
STAGES = ("decode", "preprocess", "infer", "postprocess")
MODEL_STAGE = "infer"
# What ``use`` may be in each stage table, besides a user's function. The infer stage has no table: it runs the model.
USES: Mapping[str, tuple[str, ...]] = {
    "decode": ("tensor", "image"),
    "preprocess": ("none", "standardize", "resize"),
    "postprocess": ("none",),
}
IMAGE_FORMATS = ("jpeg", "png", "bmp", "webp", "gif", "tiff")
# GenICam's names of what a raw frame holds; "auto" goes by the tensor's datatype and rank.
PIXEL_FORMATS = (
    "auto", "Mono8", "Mono10", "Mono12", "Mono12p", "Mono12Packed", "Mono16", "RGB8", "BGR8",
    "BayerRG8", "BayerGR8", "BayerGB8", "BayerBG8",
)  # fmt: skip
# Those that have more than 8 bits to keep.
DEEP_PIXEL_FORMATS = ("auto", "Mono10", "Mono12", "Mono12p", "Mono12Packed", "Mono16")
FUNCTION = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
OUTPUT_DTYPES = tuple(dtype.name for dtype in DType if dtype not in (DType.UNSET, DType.ENCODED))


def use_rule(stage: str) -> Rule:
    """Return what ``use`` may be in the table of *stage*."""
    words = USES[stage]
    names = ", ".join(f'"{word}"' for word in words)
    return text("|".join((*words, FUNCTION)), f'{names} or "module:function"')


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """One tensor that a user's stage writes: its place in the slot is reserved at start for the largest shape."""

    name: str = field(metadata=about(NAME, "The tensor's name for the next stage or, after postprocess, for the client."))
    dtype: DType = field(
        metadata=about(one_of(*OUTPUT_DTYPES), "Datatype by its Open Inference Protocol name; BYTES also needs max_bytes.")
    )
    shape: tuple[int, ...] = field(
        metadata=about(
            whole_list(-1, MAX_DIM, longest=MAX_RANK),
            "Sizes, rows first; -1 is a size known only at run time and then max_shape is needed.",
            unit="elements",
        )
    )
    max_shape: tuple[int, ...] = field(
        default=(),
        metadata=about(
            whole_list(1, MAX_DIM, longest=MAX_RANK),
            "The largest shape: the slot's bytes are reserved for it. What does not fit is OutputTooLarge.",
            unit="elements",
            default="shape",
        ),
    )
    max_bytes: int = field(
        default=0,
        metadata=about(
            whole(1, GIB),
            "Of a BYTES tensor only: bytes reserved for all its elements with their 4-byte lengths.",
            unit="bytes",
            default="none",
        ),
    )


@dataclass(frozen=True, slots=True)
class StageConfig:
    """What one stage of a lane runs. *params* are the other keys of its table, with the defaults of a built-in filled in."""

    use: str = field(
        metadata=about(
            text(r".+", "a text"),
            "A built-in, or a [function of yours](functions.md) as module:function, beside the config file or installed.",
            default="decode: tensor, or image when the table is present; else none",
        )
    )
    params: Mapping[str, object] = field(default_factory=dict)
    outputs: tuple[OutputConfig, ...] = field(
        default=(),
        metadata=about(
            Rule(f"a list of 1 to {MAX_OUTPUTS} tables", lambda value: value),
            "What a user's function writes; needed with one. A built-in declares its own.",
            default="none",
        ),
    )

    @property
    def is_user_function(self) -> bool:
        """True when the stage runs code that is not ours."""
        return ":" in self.use


def some_of(*words: str) -> Rule:
    """Return the rule of lists of one or more of these words, each once."""

    def accept(value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple) or not value or len(set(map(str, value))) != len(value):
            raise ValueError
        if not all(isinstance(word, str) and word in words for word in value):
            raise ValueError
        return tuple(value)

    return Rule(f"a list of some of {', '.join(words)}", accept)


def either_number(*numbers: int) -> Rule:
    """Return the rule of exactly these whole numbers."""

    def accept(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value not in numbers:
            raise ValueError
        return value

    return Rule(" or ".join(map(str, numbers)), accept)


# Keys of a built-in beside ``use``: (stage, use) -> key -> (rule, default, why).
PARAMS: Mapping[tuple[str, str], Mapping[str, tuple[Rule, object, str]]] = {
    ("decode", "image"): {
        "color": (one_of("grey", "rgb"), "rgb", "Channels of the decoded picture; rgb because most image models take it."),
        "orientation": (
            one_of("stored", "exif"),
            "stored",
            "Turn the picture as its EXIF says, or not: cameras on a line write none, and one rule holds for all formats.",
        ),
        "formats": (
            some_of(*IMAGE_FORMATS),
            IMAGE_FORMATS,
            "File formats that are taken, known by their first bytes. All by default; each has its limits before decoding.",
        ),
        "alpha": (
            one_of("drop", "black", "white"),
            "drop",
            "Transparency: keep the colour under it, or lay it over black or white. Cameras send none.",
        ),
        "depth": (
            either_number(8, 16),
            8,
            "Bits of a pixel. 8: deeper files are refused, deeper raw frames keep their highest 8. 16: UINT16 pixels, grey only, "
            "from 16-bit files and deep raw frames, values unchanged.",
        ),
        "pixel_format": (
            one_of(*PIXEL_FORMATS),
            "auto",
            "What raw tensors hold. auto: UINT8 (h, w) is Mono8, (h, w, 3) RGB8; with depth 16, UINT16 (h, w) is Mono16.",
        ),
        "memory_limit_mb": (
            whole(0, MIB),
            0,
            "MiB a process that decodes may take beyond what it has at its start; a picture that needs more is OutOfMemory. "
            "0: from max_pixels in a process without the model, none beside a model.",
        ),
    },
    ("preprocess", "resize"): {
        "height": (whole(0, 32_768), 0, "Height of the model's picture in pixels; 0: as the model says."),
        "width": (whole(0, 32_768), 0, "Width of the model's picture in pixels; 0: as the model says."),
        "mean": (
            number_list(-1e6, 1e6, longest=3),
            (0.0,),
            "Taken from each pixel value (0 to 255), one for all channels or one for each; 0 leaves the values as they are.",
        ),
        "scale": (
            number_list(-1e6, 1e6, longest=3),
            (1.0,),
            "Multiplied after that, one for all channels or one for each; 1 leaves the values as they are.",
        ),
    },
}


def lane_stages(has_model: bool) -> tuple[str, ...]:
    """Return the stage list of a lane."""
    return STAGES if has_model else tuple(stage for stage in STAGES if stage != MODEL_STAGE)
