"""Job `probe`, only of the tests: tells from inside what a job can reach, and misbehaves on demand (parameter `do`)."""

import errno
import hashlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from draftmill.measurement.device.lock import device_lock
from draftmill.measurement.device.profiles import CPU
from draftmill.outcome import Refusal, Refused
from jobs.contract import Job, Result, main


def tried(path: str) -> str:
    """What writing there gives: "written" or the error's name."""
    try:
        Path(path).write_text("x")
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "written"


def fetched(address: str) -> str:
    """The digest of what is there, or the error's name."""
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return hashlib.sha256(answer.read()).hexdigest()
    except urllib.error.URLError as error:
        return type(error.reason).__name__


def report(job: Job) -> None:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    job.fact("uid", os.getuid())
    job.fact("gid", os.getgid())
    job.fact("status", {name: status[name].strip() for name in status if name.startswith(("Cap", "NoNew", "Seccomp"))})
    job.fact("interfaces", sorted(os.listdir("/sys/class/net")))
    places = ("/new", "/opt/draftmill/new", "/tmp/new", "/job/new", *(f"{p}/new" for p in job.request.inputs.values()))
    job.fact("writes", {place: tried(place) for place in places})
    job.fact("inputs", {slot: sorted(os.listdir(path)) for slot, path in job.request.inputs.items()})
    job.fact("environment", dict(os.environ))
    job.fact("devices", sorted(os.listdir("/dev")))
    (job.out / "product").write_text("made inside")


def work(job: Job) -> None:
    wanted = job.parameters["do"]
    if wanted == "report":
        report(job)
    elif wanted == "sleep":
        job.log("asleep")
        time.sleep(600)
    elif wanted == "hold":
        with device_lock(CPU, run="inside"):
            job.log("holds the device")
            time.sleep(600)
    elif wanted == "allocate":
        if job.parameters["where"] == "child":
            child = subprocess.run([sys.executable, "-c", "len(bytearray(b'x' * (300 << 20)))"], check=False)
            job.log(f"child ended with {child.returncode}")
        else:
            job.fact("length", len(bytearray(b"x" * job.parameters["bytes"])))
    elif wanted == "refuse":
        raise Refused(Refusal("probe.bad", "config.json", 3, 4, "The probe was asked to refuse."))
    elif wanted == "vanish":
        os._exit(3)
    elif wanted == "lie":
        claim = Result(job="probe", outcome="ok", exit_code=0)
        (job.out.parent / "result.json").write_text(claim.model_dump_json())
        os._exit(9)
    elif wanted == "fork":
        children = []
        try:
            for _ in range(200):
                children.append(subprocess.Popen(["sleep", "60"]))
        except OSError as error:
            job.fact("stopped_by", errno.errorcode[error.errno or 0])
        job.fact("forked", len(children))
    elif wanted == "secret":
        text = job.secret("hf_token") or ""
        job.fact("sha256", hashlib.sha256(text.encode()).hexdigest())
        job.fact("mode", oct(Path(job.request.secrets["hf_token"]).stat().st_mode))
        job.log("holds the secret")
        # Who runs it looks from outside meanwhile.
        while not (job.out.parent / "looked").exists():
            time.sleep(0.02)
    elif wanted == "link":
        (job.out / "shadow").symlink_to("/etc/shadow")
    elif wanted == "print":
        print("not an event")
        print('{"no": "event"}')
        print("on the other stream", file=sys.stderr)
        print("y" * 200_000)
        job.log("structured")
        sys.stdout.write("no end of line")
        sys.stdout.flush()
    elif wanted == "fetch":
        job.fact("sha256", fetched(job.parameters["endpoint"]))
        job.fact("other", fetched(job.parameters["other"]))
        job.fact("interfaces", sorted(os.listdir("/sys/class/net")))


if __name__ == "__main__":
    main("probe", work)
