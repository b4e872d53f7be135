"""System calls that Python has no name for. For the programs of this directory."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE, UNSHARE_RANGE = (
    1,
    2,
    8,
    0x10,
    0x20,
    0x40,
)
AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = 0x100, 0x1000
NEW = ctypes.c_char_p


def _call(name, *types):
    function = getattr(libc, name)
    function.argtypes = types

    def called(*arguments):
        result = function(*arguments)
        if result == -1:
            raise OSError(ctypes.get_errno(), name)
        return result

    return called


_int, _long, _text, _pointer, _size = (
    ctypes.c_int,
    ctypes.c_long,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
)
_renameat2 = _call("renameat2", _int, _text, _int, _text, ctypes.c_uint)
_utimensat = _call("utimensat", _int, _text, _pointer, _int)
_linkat = _call("linkat", _int, _text, _int, _text, _int)
_name_to_handle_at = _call("name_to_handle_at", _int, _text, _pointer, _pointer, _int)
_open_by_handle_at = _call("open_by_handle_at", _int, _pointer, _int)
_getxattr = _call("getxattr", _text, _text, _pointer, _size)
_listxattr = _call("listxattr", _text, _pointer, _size)
_prctl = _call("prctl", _int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_capset = _call("capset", _pointer, _pointer)
_inotify_add_watch = _call("inotify_add_watch", _int, _text, ctypes.c_uint32)
fallocate = _call("fallocate", _int, _int, _long, _long)
syncfs = _call("syncfs", _int)
sync_file_range = _call("sync_file_range", _int, _long, _long, ctypes.c_uint)
inotify_init = _call("inotify_init1", _int)


def renameat2(old, new, flags):
    _renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)


def exchange(one, other):
    renameat2(one, other, EXCHANGE)


def link_descriptor(fd, path):
    """linkat(2) of a descriptor: gives a file without a name one."""
    _linkat(fd, b"", AT_FDCWD, os.fsencode(path), AT_EMPTY_PATH)


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", _long), ("nanoseconds", _long)]


def set_times(path, seconds, nanoseconds, follow=True):
    """Both times, as they are: Python's own calls cannot say all of them."""
    times = (Timespec * 2)(Timespec(seconds, nanoseconds), Timespec(seconds, nanoseconds))
    _utimensat(AT_FDCWD, os.fsencode(path), times, 0 if follow else AT_SYMLINK_NOFOLLOW)


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", _int), ("data", ctypes.c_ubyte * 128)]


def handle_of(path):
    handle, mount = Handle(bytes=128), _int()
    _name_to_handle_at(AT_FDCWD, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0)
    return handle


def open_handle(mount_fd, handle, flags=os.O_RDONLY):
    return _open_by_handle_at(mount_fd, ctypes.byref(handle), flags)


def attribute_size(path, name, buffer=None, size=0):
    return _getxattr(os.fsencode(path), os.fsencode(name), buffer, size)


def attribute_list_size(path, buffer=None, size=0):
    return _listxattr(os.fsencode(path), buffer, size)


def watch(inotify, path, events):
    return _inotify_add_watch(inotify, os.fsencode(path), events)


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", _int)]


class _Sets(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID = 0, 1, 2, 3, 4
CAP_SYS_ADMIN, CAP_SYS_RESOURCE, CAP_MKNOD = 21, 24, 27
_PR_SET_KEEPCAPS, _VERSION_3 = 8, 0x20080522


def become_with(user, group, groups, *capabilities):
    """Makes this process that user's, who has these capabilities and no other."""
    _prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    sets = (_Sets * 2)()
    sets[0].effective = sets[0].permitted = sum(1 << capability for capability in capabilities)
    _capset(ctypes.byref(_Header(_VERSION_3, 0)), sets)
