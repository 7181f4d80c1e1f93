"""Check on a real GPU what cannot be checked without one; with --cpu, check what can.

Prints one JSON object as the last line: each check with its figures. Exit status 0: all that ran passed; 1: one did not, or
there was no time for it; 77: no GPU. The same object is written to --json after each check, so that nothing is lost when it is
interrupted.

    python -m bench.gpu_check --tier A --json tier_a.json      needs a GPU and cupy
    python -m bench.gpu_check --tier B --json tier_b.json      needs onnxruntime with CUDA too
    python -m bench.gpu_check --cpu                            needs neither
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gpu.registry import Check, Skipped, all_checks
from stages.detect import probe
from stages.device_choice import about, findings

ROOT = Path(__file__).resolve().parents[1]
NO_GPU = 77
# A tier is over within five minutes (docs/gpu.md); what does not fit is told as not run.
TIER_S = 285.0
MAX_TEXT = 600
PASSED, SKIPPED = "ok", "skipped"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks of one tier, or one of them; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.child:
        return _be_child(options.child, options.out)
    tier = "cpu" if options.cpu else options.tier
    chosen = [c for c in all_checks().values() if (c.name in options.only if options.only else c.tier == tier)]
    report: dict[str, Any] = {"tier": tier, "ok": False, "complete": False, "machine": _machine(tier), "checks": {}}
    if tier != "cpu" and report["machine"]["no_gpu"]:
        _write(report, options.json)
        print(json.dumps(report))
        return NO_GPU
    _run_all(chosen, report, options.json)
    print(json.dumps(report))
    return 0 if report["ok"] else 1


def _run_all(chosen: Sequence[Check], report: dict[str, Any], path: Path | None) -> None:
    """Run check after check, each in its own process, until the tier's time is over."""
    until = time.monotonic() + TIER_S
    for check in chosen:
        limit_s = min(check.limit_s, until - time.monotonic())
        result = _in_child(check, limit_s) if limit_s > 1 else {"status": "NOT RUN", "why": "the time of the tier is over"}
        report["checks"][check.name] = result
        print(f"{check.name:<22} {result['status']}", file=sys.stderr, flush=True)
        _write(report, path)
    report["complete"] = True
    report["ok"] = bool(chosen) and all(r["status"] in (PASSED, SKIPPED) for r in report["checks"].values())
    _write(report, path)


def _in_child(check: Check, limit_s: float) -> dict[str, Any]:
    """Run one check in a process group of its own and return its result, whatever becomes of it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu_check_") as directory:
        out = Path(directory) / "result.json"
        command = [sys.executable, "-m", "bench.gpu_check", "--child", check.name, "--out", str(out)]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said, _ = child.communicate(timeout=limit_s)
            result = json.loads(out.read_text()) if out.exists() else _died(child.returncode, said)
        except subprocess.TimeoutExpired:
            result = {"status": "TIMEOUT", "limit_s": round(limit_s, 1)}
        finally:
            _end_group(child)
    return {**result, "seconds": round(time.monotonic() - started, 1)}


def _died(code: int, said: bytes) -> dict[str, Any]:
    return {"status": "CRASHED", "code": code, "said": said.decode(errors="replace")[-MAX_TEXT:]}


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill what a check started and left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _be_child(name: str, out: Path) -> int:
    """Run one check in this process and write its result."""
    check = all_checks()[name]
    try:
        passed, figures = check.function()
        result = {"status": PASSED if passed else "FAILED", **figures}
    except Skipped as reason:
        result = {"status": SKIPPED, "why": str(reason)}
    except Exception as error:
        result = {"status": "ERROR", "error": f"{type(error).__name__}: {error}"[:MAX_TEXT]}
    part = out.with_suffix(".part")
    part.write_text(json.dumps(result))
    part.rename(out)
    # Unloading CUDA's libraries may crash, which says nothing about the check.
    os._exit(0)


def _machine(tier: str) -> dict[str, Any]:
    """Return what the probe says about this machine; without it for the checks that need no GPU."""
    if tier == "cpu":
        return {"cpus": os.cpu_count()}
    facts = probe(0)
    return {
        "no_gpu": bool(facts.driver_error),
        "cpus": os.cpu_count(),
        **about(facts),
        "findings": [f"{finding.reason}; {finding.cure}" for finding in findings(facts)],
    }


def _write(report: dict[str, Any], path: Path | None) -> None:
    """Replace the file by the report so far; a reader sees the old one or the new one."""
    if path is not None:
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(report, indent=1) + "\n")
        part.rename(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tier", choices=("A", "B"), default="A", help="which checks (default: %(default)s)")
    parser.add_argument("--cpu", action="store_true", help="the checks that need no GPU")
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=sorted(all_checks()), help="this check; may be repeated"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too, after each check")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
