"""The shortest traces in which an earlier rule of slot ownership broke, played against the core of today."""

from __future__ import annotations

from slot_world import World
from slow_stage import StageProcess


def process_of(world: World, index: int) -> StageProcess:
    """Return the one live process of a part of the cut."""
    return next(process for process in world.processes.values() if process.incarnation.process == index)


def admit(world: World, request_id: int, *, is_killer: bool = False) -> None:
    """Have a request come in and go to the first process."""
    world.admit(0, request_id, idempotent=True, deadline_ns=world.now_ns + 1_000, is_killer=is_killer, fails_in=-1)
    world.dispatch(0)
    deliver_all(world)


def deliver_all(world: World) -> None:
    """Let every hop arrive."""
    for message in list(world.messages):
        world.deliver(message)


def run_to(world: World, process: StageProcess, point: str) -> None:
    """Let a process go on until it rests at *point*."""
    for _ in range(60):
        if world.step(process) == point:
            world.check()
            return
    raise AssertionError(f"it never came to {point}")


def die(world: World, process: StageProcess, *, loses: bool = True) -> None:
    """Kill and reap a process; what it sent and has not arrived is lost with it."""
    world.kill(process)
    if loses:
        world.messages = [message for message in world.messages if message.sender != process.me]
    world.reap(process)
    world.check()


def finish(world: World) -> None:
    """Let everything go on until all is answered."""
    for _ in range(50):
        for dead in list(world.dead.values()):
            world.reap(dead)
        world.start_missing()
        deliver_all(world)
        for process in list(world.processes.values()):
            for _ in range(20):
                if process.me in world.processes:
                    world.step(process)
        world.tick()
        world.dispatch(0)
        world.check()
    assert world.lane.slots.free_count == world.slots
    assert all(world.finals[request.ticket] == 1 for request in world.admitted)


def test_a_slot_named_for_one_that_was_reaped_meanwhile_is_not_stuck() -> None:
    """The sender looked at the board, rested, and names and sends after both the death and its scan are over."""
    world = World(slots=1)
    admit(world, 1)
    sender = process_of(world, 0)
    run_to(world, sender, "picked")
    die(world, process_of(world, 1))
    world.tick()
    run_to(world, sender, "sent")

    finish(world)
    assert world.core.ledger.answered == 1


def test_a_death_that_holds_every_slot_does_not_block_the_lane() -> None:
    """They run again in place: no free slot is needed for that."""
    for slots in (1, 2):
        world = World(slots=slots)
        for request_id in range(slots):
            admit(world, request_id)
        run_to(world, process_of(world, 0), "called")
        die(world, process_of(world, 0))

        finish(world)
        assert world.core.ledger.answered == slots


def test_a_taker_that_rests_behind_its_check_keeps_the_slot_from_its_next_life() -> None:
    """Its sender is dead and the slot condemned; it is used again only when the taker has let go."""
    world = World(slots=1)
    admit(world, 1)
    run_to(world, process_of(world, 0), "sent")
    deliver_all(world)
    taker = process_of(world, 1)
    run_to(world, taker, "checked")
    die(world, process_of(world, 0), loses=False)
    world.start_missing()
    world.tick()
    world.dispatch(0)
    assert len(world.lane.slots.condemned) == 1

    run_to(world, taker, "sent")
    finish(world)
    assert (world.core.ledger.answered, world.core.ledger.late_hops) == (1, 1)


def test_a_killer_costs_two_processes_also_when_its_sender_dies_first() -> None:
    """Its slot is condemned already when it kills the second time, and is marked all the same."""
    world = World(slots=1)
    admit(world, 1, is_killer=True)
    run_to(world, process_of(world, 0), "dead")
    finish_deaths(world)
    world.killers.clear()
    run_to(world, process_of(world, 0), "sent")
    deliver_all(world)
    world.killers.add(world.admitted[0].ticket)
    taker = process_of(world, 1)
    run_to(world, taker, "checked")
    die(world, process_of(world, 0), loses=False)
    run_to(world, taker, "dead")

    finish(world)
    assert sum(world.kills.values()) == 2
    assert world.core.ledger.snapshot(0)["codes"] == {"QUARANTINED": 1}


def finish_deaths(world: World) -> None:
    """Reap the dead, start what is missing, and send what runs again."""
    for dead in list(world.dead.values()):
        world.reap(dead)
    world.start_missing()
    world.dispatch(0)
    deliver_all(world)


def test_a_late_hop_of_a_dead_sender_is_not_taken_for_the_new_run() -> None:
    """The same ticket in the same slot, one generation back."""
    world = World(slots=1)
    admit(world, 1)
    run_to(world, process_of(world, 0), "sent")
    late = list(world.messages)
    die(world, process_of(world, 0), loses=False)
    world.messages = []
    finish_deaths(world)
    run_to(world, process_of(world, 0), "called")
    world.messages = late
    deliver_all(world)
    run_to(world, process_of(world, 1), "idle")
    run_to(world, process_of(world, 1), "idle")

    finish(world)
    assert world.core.ledger.answered == 1
