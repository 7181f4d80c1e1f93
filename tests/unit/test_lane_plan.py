"""From a config and a model's tensors to the plan: which links there are, who shares what, and what does not fit together."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import DEMO, make_plan

from schemas.config import parse_config
from schemas.plan import LanePlan, LinkPlan, Plan, ProcessPlan, StepPlan
from schemas.status import ConfigError
from schemas.tensors import DType, TensorSpec
from stages.lane_plan import ModelSpec, build_plan

QC = (DEMO / "demo.toml").read_text().partition("[lane.ticks]")[0]
PROCESSES = 'processes = [["decode", "preprocess"], ["infer"], ["postprocess"]]'


def lane_of(text: str) -> LanePlan:
    """Return the plan of the one lane of *text*."""
    return make_plan(text).lanes[0]


def link(plan: LanePlan, name: str) -> LinkPlan:
    """Return one link of a lane."""
    return next(found for found in plan.links if found.name == name)


def model_plan(more: str, *, inputs: TensorSpec, outputs: TensorSpec, path: Path = DEMO / "trading_mlp.onnx") -> Plan:
    """Return the plan of a lane with a model that takes and gives what a test says; its file is not read."""
    config = parse_config(f'[lane.m]\nmodel = "{path}"\n{more}', base=DEMO, source="test.toml")
    return build_plan(config, {"m": ModelSpec((inputs,), (outputs,))})


ROW = TensorSpec("x", DType.FP32, (-1, 32))
SCORE = TensorSpec("y", DType.FP32, (-1, 2))


def test_a_lane_of_tensors_has_two_links() -> None:
    """The model's inputs and its outputs; stages with nothing to do read and write the same link."""
    plan = model_plan("", inputs=ROW, outputs=SCORE).lanes[0]

    assert [(found.name, found.row_bytes, found.static, found.shared) for found in plan.links] == [
        ("input", 128, True, True),
        ("scores", 64, True, True),
    ]
    assert plan.steps == (
        StepPlan("decode", "none", 0, 0),
        StepPlan("preprocess", "none", 0, 0),
        StepPlan("infer", "model", 0, 1),
        StepPlan("postprocess", "none", 1, 1),
    )
    assert (plan.inputs, plan.outputs) == (
        (TensorSpec("x", DType.FP32, (1, 32)),),
        (TensorSpec("y", DType.FP32, (1, 2)),),
    )


def test_requests_of_many_rows_have_room_for_their_most() -> None:
    """Their shapes are in descriptors then."""
    plan = model_plan("max_rows = 10", inputs=ROW, outputs=SCORE).lanes[0]

    assert [(found.row_bytes, found.static) for found in plan.links] == [(1280, False), (128, False)]
    assert plan.inputs[0].shape == (-1, 32)


def test_outputs_of_unknown_size_have_the_room_that_the_config_gives() -> None:
    """They are copied as they come."""
    plan = model_plan("max_output_bytes = 4096", inputs=ROW, outputs=TensorSpec("y", DType.FP32, (-1, -1))).lanes[0]

    assert (link(plan, "scores").row_bytes, link(plan, "scores").static) == (4096, False)


def test_a_lane_without_a_model_takes_and_gives_any_tensors() -> None:
    """One link from end to end."""
    plan = lane_of("[lane.echo]\nmax_encoded_bytes = 1000\n")

    assert [(found.name, found.tensors, found.row_bytes) for found in plan.links] == [("input", (), 1000)]
    assert (plan.inputs, plan.outputs, plan.final_link, plan.platform) == ((), (), 0, "slotline")


def test_the_picture_lane_of_the_demo() -> None:
    """Picture, pixels, the model's row, scores, verdict."""
    plan = lane_of(QC)

    assert [found.name for found in plan.links] == ["input", "pixels", "row", "scores", "reply"]
    assert plan.inputs == (TensorSpec("image", DType.ENCODED, (1,)),)
    assert link(plan, "pixels").tensors[0].max_shape == (65_536, 1)
    assert link(plan, "row").tensors[0].max_shape == (1, 1, 65_536, 1)
    assert [(t.name, t.offset) for t in link(plan, "reply").tensors] == [("verdict", 0), ("score", 64), ("boxes", 128)]
    assert link(plan, "reply").row_bytes == 128 + 32 * 6 * 4


@pytest.mark.parametrize(
    ("processes", "shared"),
    [
        (PROCESSES, {"input", "row", "scores", "reply"}),
        ("", {"input", "reply"}),
        ('processes = [["decode"], ["preprocess", "infer", "postprocess"]]', {"input", "pixels", "reply"}),
        ('processes = [["decode"], ["preprocess"], ["infer"], ["postprocess"]]', {"input", "pixels", "row", "scores", "reply"}),
    ],
)
def test_only_what_two_processes_see_has_a_region(processes: str, shared: set[str]) -> None:
    """The input and the answer are always among it: the broker is one of the two."""
    plan = lane_of(QC.replace(PROCESSES, processes))

    assert {found.name for found in plan.links if found.shared} == shared
    assert {region.name for region in plan.regions} == shared
    assert all((found.region >= 0) == found.shared for found in plan.links)
    assert all(plan.regions[found.region].name == found.name for found in plan.links if found.shared)


def test_the_cut_says_which_steps_each_process_runs() -> None:
    """From the first to one past the last."""
    plan = lane_of(QC)

    assert [(part.first_step, part.end_step, part.process) for part in plan.cut] == [(0, 2, 0), (2, 3, 1), (3, 4, 2)]


def test_processes_have_names_for_people_and_fault_points() -> None:
    """The lane's; with the stages where there are several."""
    assert make_plan(QC).processes == (
        ProcessPlan("qc.decode+preprocess", (0,), 1),
        ProcessPlan("qc.infer", (0,), 1),
        ProcessPlan("qc.postprocess", (0,), 1),
    )
    assert make_plan("[lane.a]\n[lane.b]\nreplicas = { decode = 3 }\n").processes == (
        ProcessPlan("a", (0,), 1),
        ProcessPlan("b", (1,), 3),
    )


def test_lanes_that_name_the_same_workers_share_their_processes() -> None:
    """Each process serves all of them."""
    plan = make_plan('[lane.a]\nworkers = "w"\nreplicas = { decode = 2 }\n[lane.b]\nworkers = "w"\nreplicas = { decode = 2 }\n')

    assert plan.processes == (ProcessPlan("w", (0, 1), 2),)
    assert [lane.cut[0].process for lane in plan.lanes] == [0, 0]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_workers_named_like_a_lane_are_not_that_lanes_processes(order: tuple[str, str]) -> None:
    """Lane a has processes of its own, whatever others call theirs."""
    tables = {"a": "[lane.a]\n", "b": '[lane.b]\nworkers = "a"\nreplicas = { decode = 2 }\n'}
    plan = make_plan("".join(tables[name] for name in order))

    assert sorted(process.replicas for process in plan.processes) == [1, 2]
    assert all(len(process.lanes) == 1 for process in plan.processes)


FUNCTION = """
[lane.f.decode]
use = "stages.demo.surface:verdict"
outputs = [{ name = "n", dtype = "INT64", shape = [-1, 2], max_shape = [5, 2] },
           { name = "s", dtype = "BYTES", shape = [-1], max_shape = [9], max_bytes = 100 }]
"""


def test_what_a_function_writes_has_the_place_that_it_declares() -> None:
    """Largest shapes, one behind the other."""
    plan = lane_of("[lane.f]\n" + FUNCTION)
    tensors = link(plan, "pixels").tensors

    assert [(t.name, t.shape, t.max_shape, t.max_bytes, t.offset) for t in tensors] == [
        ("n", (-1, 2), (5, 2), 80, 0),
        ("s", (-1,), (9,), 100, 128),
    ]
    assert not link(plan, "pixels").static


@pytest.mark.parametrize(
    ("more", "inputs", "expected"),
    [
        ("max_encoded_bytes = 64", ROW, "lane.m.max_encoded_bytes: 64 is less than one request of this model: 128"),
        ('[lane.m.decode]\nuse = "image"', ROW, "lane.m.preprocess.use: the model needs x FP32 [-1, 32]"),
        (
            '[lane.m.decode]\nuse = "image"\n[lane.m.preprocess]\nuse = "standardize"',
            TensorSpec("x", DType.FP32, (-1, 1, -1, -1)),
            'set [lane.m.decode] use = "image", color = "grey"',
        ),
        (
            '[lane.m.decode]\nuse = "image"\ncolor = "grey"\n[lane.m.preprocess]\nuse = "standardize"',
            ROW,
            "this one takes FP32 [-1, 32]",
        ),
    ],
)
def test_stages_that_do_not_fit_together_are_refused_by_key(more: str, inputs: TensorSpec, expected: str) -> None:
    """One line that says what to change."""
    with pytest.raises(ConfigError) as caught:
        model_plan(more, inputs=inputs, outputs=SCORE)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_with_more_tensors_than_a_slot_describes_is_refused() -> None:
    """The slot header has eight descriptors."""
    config = parse_config(f'[lane.m]\nmodel = "{DEMO / "trading_mlp.onnx"}"\n', base=DEMO, source="test.toml")
    nine = tuple(TensorSpec(f"x{index}", DType.FP32, (-1, 1)) for index in range(9))

    with pytest.raises(ConfigError, match=r"lane\.m\.model: has 9 tensors"):
        build_plan(config, {"m": ModelSpec(nine, (SCORE,))})
