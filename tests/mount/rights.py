#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares what each thread of a process may do with the table under "Processes" in docs/dev/privileges.md.

usage: rights.py README COLUMN ROLE PID USER   COLUMN: 1, 2 or 3 of the table; ROLE: supervisor, worker, keeper or program
Exit code 0: every thread has just the rights that the table says; 1: what differs is printed.
"""
import os
import pwd
import sys

NAMES = """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT
SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE""".split()


def names(mask):
    return {"CAP_" + (NAMES[bit] if bit < len(NAMES) else str(bit)) for bit in range(64) if mask >> bit & 1}


def table(path, role, column):
    """The cells of a role: {"uid": ..., "in effect": ..., "permitted besides": ...}."""
    cells, inside = {}, False
    for line in open(path):
        if not line.startswith("| "):
            continue
        fields = [field.strip() for field in line.strip().strip("|").split("|")]
        if fields[0].startswith("**"):
            inside = fields[0].startswith(f"**{role}**")
            if inside:
                cells["uid"] = fields[column]
        elif inside and fields[0].split(",")[0] in ("in effect", "permitted besides"):
            cells[fields[0].split(",")[0]] = fields[column]
    if "uid" not in cells or "in effect" not in cells:
        sys.exit(f"{path}: no row of the {role}")
    return cells


def capabilities(cell):
    return {word.strip(",;") for word in cell.split() if word.startswith("CAP_")}


def uids(cell, user):
    """Real, effective and saved uid."""
    if cell.startswith("real and saved 0"):
        return [0, user, 0]
    return [0 if cell.startswith("0") else user] * 3


def gids(cell, user):
    """Real, effective and saved gid."""
    group = pwd.getpwuid(user).pw_gid
    if cell.startswith("real and saved 0"):
        return [0, group if "gid likewise" in cell else 0, 0]
    return [0 if cell.startswith("0") else group] * 3


def groups(user):
    entry = pwd.getpwuid(user)
    return sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid)))


def thread(pid, tid):
    return dict(line.rstrip("\n").split(":\t", 1) for line in open(f"/proc/{pid}/task/{tid}/status") if ":\t" in line)


def main():
    readme, column, role, pid, user = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    cells = table(readme, role, column)
    effective = capabilities(cells["in effect"])
    permitted = effective | capabilities(cells.get("permitted besides", ""))
    wrong = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        status = thread(pid, tid)

        def expect(what, is_so, wanted):
            if is_so != wanted:
                wrong.append(f"thread {tid} ({status['Name']}): {what}: {is_so}, and the table says {wanted}")

        expect("uid", [int(uid) for uid in status["Uid"].split()[:3]], uids(cells["uid"], user))
        expect("gid", [int(gid) for gid in status["Gid"].split()[:3]], gids(cells["uid"], user))
        if "groups of U" in cells["uid"]:
            expect("groups", sorted({int(gid) for gid in status["Groups"].split()}), groups(user))
        expect("in effect", sorted(names(int(status["CapEff"], 16))), sorted(effective))
        expect("permitted", sorted(names(int(status["CapPrm"], 16))), sorted(permitted))
        expect("inheritable", sorted(names(int(status["CapInh"], 16))), [])
        expect("ambient", sorted(names(int(status["CapAmb"], 16))), [])
        if "no_new_privs" in cells["in effect"]:
            expect("no_new_privs", status["NoNewPrivs"].strip(), "1")
    print("\n".join(wrong) or f"{role}: as the table says")
    return 1 if wrong else 0


sys.exit(main())
