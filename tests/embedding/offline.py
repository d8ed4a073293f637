"""Forbid internet sockets in this process: the next one ends it.

Python's audit hooks see what Python code does. Compiled code (onnxruntime's telemetry) is seen by
the kernel alone, so on Linux a seccomp filter ends the process at `socket(AF_INET or AF_INET6)`,
which looking up a host name needs, too.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

KILLED = 159  # 128 + SIGSYS, as a shell shows it; subprocess says −31
EVENTS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect")
_SOCKET = {"x86_64": 41, "aarch64": 198}  # the number of the system call
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_KILL_PROCESS, _ALLOW = 0x80000000, 0x7FFF0000


def forbid() -> None:
    """From here on, an internet socket ends this process."""
    sys.addaudithook(_audit)
    if sys.platform == "linux" and platform.machine() in _SOCKET:
        _filter(_SOCKET[platform.machine()])


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event in EVENTS and not isinstance(arguments[1 if event.endswith("connect") else 0], bytes):
        os.write(2, f"{event} {arguments}\n".encode())
        os._exit(KILLED)


def _filter(socket_call: int) -> None:
    instructions = [
        (_LOAD, 0, 0, 0),  # the number of the system call
        (_EQUAL, 0, 4, socket_call),  # another one: allow
        (_LOAD, 0, 0, 16),  # its first argument, the family
        (_EQUAL, 1, 0, 2),  # AF_INET: kill
        (_EQUAL, 0, 1, 10),  # AF_INET6: kill; others: allow
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = b"".join(struct.pack("HBBI", *one) for one in instructions)
    code = ctypes.create_string_buffer(program)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    given = Program(len(instructions), ctypes.addressof(code))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _FILTER, ctypes.byref(given)
    ):
        os.write(2, b"seccomp is not available: only Python's own sockets are watched\n")
