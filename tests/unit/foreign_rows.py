"""Which test, run with the C++ and the Node client alike, shows each row of docs/failures.md that their users can meet.

The keys are the rows' first cells. A new row needs its test here, or the reason why no client sees anything of it.
"""

from __future__ import annotations

# Parts of the page that are not for both, by their first words: asyncio's table, the embedded pipeline, and leases, which Node
# has not and C++ tests by itself (test_cpp_leases.py).
PYTHON_ONLY = ("The **asyncio client** differs", "## The embedded pipeline", "## A lease")

KILLED_IDLE = "test_a_stage_killed_while_idle_costs_nothing_but_time"
RUNS_AGAIN = "test_what_a_killed_stage_had_taken_runs_again"
HANGING = "test_a_request_that_hangs_is_ended"
QUARANTINED = "test_a_request_that_kills_twice_is_quarantined"
STOPPED = "test_a_stopped_stage_is_replaced"
BY_CODE = "test_each_code_is_the_exception_that_python_raises"
NOBODY = "test_nobody_there_is_said_with_endpoint_and_cure"
UNAVAILABLE = "test_a_lane_that_cannot_start_is_unavailable"
PICTURES = "test_a_bad_picture_is_refused_and_a_large_one_by_its_header"
BROKER_KILLED = "test_calls_end_with_the_broker_and_the_client_goes_on"
SUPERVISOR_KILLED = "test_a_killed_supervisor_ends_calls_and_then_nobody_is_there"
TOLD_TO_END = "test_a_server_told_to_end_answers_what_it_took"
REFUSED_KEY = "test_who_is_refused_is_told_and_reaches_nobody"
GARBAGE = ("test_garbage_ends_the_connection", "test_hostile_replies_end_their_call_and_nothing_else")
REFUSALS = "test_refusals_carry_code_and_field"

# Row -> the tests that show it. Where several events look alike from outside, one of them is played.
SHOWN: dict[str, tuple[str, ...]] = {
    # A stage process
    "killed while idle": (KILLED_IDLE,),
    "killed with requests taken or on their way": (RUNS_AGAIN,),
    "killed while it runs a request": (RUNS_AGAIN,),
    "killed a second time by the same request": (QUARANTINED,),
    "killed while it held a request that may not run twice (flag or lane not idempotent)": (
        "test_a_failure_of_the_server_is_told_apart",
    ),
    "six processes died that merely held the same request": (BY_CODE,),
    "killed twice in a row, or while it starts": (KILLED_IDLE,),
    "the giver dies while the taker stalls": (RUNS_AGAIN,),
    "never returns from a call": (HANGING,),
    "never returns, twice": (HANGING,),
    "stands still outside a call for 0.5 s with work waiting": (STOPPED,),
    "stopped (SIGSTOP)": (STOPPED,),
    "is not ready 180 s after its start": (KILLED_IDLE,),
    "dies five times at the first start": (NOBODY,),
    "the same, and no other replica serves the lane": (UNAVAILABLE,),
    "no replica of a stage is up": (KILLED_IDLE,),
    "a hop is lost between two live processes (a fault of ours; injected)": ("test_a_full_lane_is_busy_and_budgets_end_calls",),
    # A model or a function
    "a user's function raises": ("test_a_function_that_raises_is_told_with_its_stage",),
    "the model raises on a batch": ("test_one_request_that_fails_a_models_batch_fails_alone",),
    "a function gives rows that no batch takes": ("test_rows_that_no_batch_takes_are_refused",),
    "an output does not fit into the slot": ("test_an_output_that_does_not_fit_is_told",),
    "a picture is damaged, cut off, or no picture": (PICTURES,),
    "a picture has more pixels than the lane takes": (PICTURES,),
    # The broker and the supervisor
    "the broker is killed": (BROKER_KILLED,),
    "the broker is killed before it ever served": ("test_a_broker_killed_at_the_first_start_is_waited_for",),
    "the broker is stopped, or does not turn for 5 s": ("test_a_stopped_broker_ends_calls_like_a_killed_one",),
    "the supervisor is killed": (SUPERVISOR_KILLED,),
    "the same events under systemd ([slotline.service](../examples/slotline.service))": (BROKER_KILLED, SUPERVISOR_KILLED),
    "the supervisor ends or stands still under systemd": (SUPERVISOR_KILLED,),
    "SIGTERM": (TOLD_TO_END,),
    "SIGTERM while a stage is being replaced": (TOLD_TO_END,),
    "`drain_s` is over, or a second SIGTERM": ("test_a_server_in_a_hurry_answers_the_rest",),
    "the broker is killed while it drains": ("test_a_broker_killed_while_it_drains_ends_calls",),
    "the slots do not fit into memory": (NOBODY,),
    "config, model or library is wrong or missing": (NOBODY,),
    "the hard limit of open files is below what it needs before its first client": (NOBODY,),
    # The client and its connection
    "nobody at the endpoint": (NOBODY,),
    "the server is absent when the client starts, and you said `connect=False`": ("test_a_client_can_be_made_before_its_server",),
    "the server is still starting": ("test_a_client_waits_for_a_server_that_is_starting",),
    "the budget is shorter than connecting takes": ("test_a_server_is_reached_by_calls_that_are_shorter_than_connecting",),
    "anything on this page, and you gave `on_failure` (Python), `onFailure` (Node) or called `infer_or` (C++)": (
        "test_a_fail_safe_call_returns_its_value_whatever_dies",
    ),
    "the connection ends": ("test_the_end_of_a_connection_ends_every_call",),
    "it ends, and a reply had arrived unread": ("test_a_reply_that_came_before_the_end_is_not_lost",),
    "the server does not read": ("test_a_server_that_does_not_read_blocks_nobody",),
    "the answer is garbage": GARBAGE,
    "no key, an unknown one, or the wrong key of the server (`[curve]`)": (
        REFUSED_KEY,
        "test_a_wrong_server_key_is_named_by_calls_too",
        "test_keys_for_a_server_without_any_are_told",
    ),
    "the key is taken off the server's list": (
        "test_a_key_that_is_taken_off_is_refused_from_then_on",
        "test_what_is_in_flight_when_a_key_is_taken_off_is_answered",
    ),
    "the key is taken off, and the broker is killed": (
        "test_a_key_taken_off_while_the_server_was_down_is_refused_by_the_next_call",
    ),
    "your key, or the server's, is missing, damaged or unreadable": (
        "test_keys_that_cannot_be_used_are_told_before_anything_is_sent",
    ),
    "you cancel": (
        "test_cancelling_ends_a_call_and_tells_the_server",
        "test_cancelling_ends_calls_and_frees_their_places",
    ),
    "you close the client": ("test_closing_ends_what_is_in_flight",),
    # A request
    "the lane's backlog is full (`backlog`, `backlog_bytes`)": ("test_a_full_lane_is_busy_and_budgets_end_calls",),
    "more in flight than `server.max_in_flight`": ("test_more_calls_than_the_server_takes_are_refused_unsent",),
    "the budget is used up": ("test_a_full_lane_is_busy_and_budgets_end_calls",),
    "its budget is shorter than the lane's shortest recent run": ("test_a_full_lane_is_busy_and_budgets_end_calls",),
    "it is older than `max_age_us` when its turn comes": ("test_a_request_that_is_too_old_is_told_so",),
    "a newer request of its key is taken (`key_policy` LatestOnly or LatestN)": (
        "test_a_request_that_a_newer_one_of_its_key_replaces_is_superseded",
        "test_only_the_newest_of_a_key_waits",
    ),
    "an elder of its Ordered key ends early or dies": ("test_an_ordered_key_goes_on_after_one_that_failed",),
    "unknown model, wrong name, dtype or shape": (REFUSALS,),
    "its header is above 64 KiB, or its payload above `max_encoded_bytes`": (
        "test_a_header_or_payload_above_its_limit_is_too_large",
    ),
    "a frame is above `server.max_message_bytes`": (REFUSALS,),
    "it has a checksum, and something else arrived": ("test_what_was_damaged_on_the_way_is_refused",),
    "the id is in flight already": ("test_ids_of_calls_in_flight_are_never_the_same",),
}

NOTHING = "nothing is seen of it"
OTHERS = "it is what somebody else does; clients see their own answers, as in all tests on a server that is shared"
# Row -> why no client of ours sees it.
UNSEEN: dict[str, str] = {
    "dies five times within 30 s later on, never ready for a second; another replica of the process serves the lane": NOTHING,
    "a hop comes twice, or late in the slot's next life (a fault of ours; injected)": NOTHING,
    "becomes ready while clients have taken every descriptor of the broker": "as when the broker is killed, or only late",
    "the broker is killed, and the client was made with `resend=True` (Python)": "an option of the Python clients",
    "the service manager's socket is gone": NOTHING,
    "another server is on the endpoint": "clients see the one that is there",
    "the client is gone": "there is no client",
    "the client does not read": "the server's doing, whatever the client's language",
    "what comes is no client of ours: HTTP, TLS, noise, an older ZMTP (`[curve]`)": OTHERS,
    "what comes is no client, or one that stops in mid-handshake or answers no heartbeat": OTHERS,
    "many short connections": OTHERS,
    "the message is malformed": "our clients send none",
    "it takes long to check, or has a million frames": "our clients send none",
    "it never ends": "our clients send none",
}
