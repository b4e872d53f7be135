#!/usr/bin/env python3
"""Records what the kernel's own file system decides about users with groups and capabilities: record.py DIR >table.txt

As root, in a directory on ext4. Each line is an operation, askers and its outcome, then `| CAPABILITY outcome` for each capability by
which the outcome is another. An outcome is an error, or ok and the mode, owner and group that the file has afterwards."""
import ctypes, errno, os, shutil, stat, sys

libc = ctypes.CDLL(None, use_errno=True)
CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "FOWNER": 3, "FSETID": 4, "SYS_ADMIN": 21, "MKNOD": 27, "SETFCAP": 31}
ERRORS = {errno.EACCES: "AccessDenied", errno.EPERM: "NotPermitted", errno.ENOENT: "NotFound", errno.ENODATA: "NoAttribute"}
FILES = """f    -rw-r----- 1:10
           x    -rwxr-x--- 1:10
           e    ---------- 1:10
           s    -rwsrwsrwx 1:10
           n    -rwSrwSrw- 1:10
           d    drwxr-x--- 1:10
           d/i  -rw------- 1:10
           c    d--------- 1:10
           c/i  -rw------- 1:10
           t    drwxrwxrwt 1:10
           t/i  -rw-rw-rw- 1:10
           g    drwxrwsrwx 1:10"""
ASKERS = ["1:20", "1:20,10", "2:20", "2:20,10", "2:10", "3:30,20"]
# An operation, and the file that is looked at afterwards.
OPERATIONS = [("lookup d/i", ""), ("lookup c/i", ""), ("lookup c/o", "")]
OPERATIONS += [("access %s %s" % (mask, path), "") for path in "fxed" for mask in ("r..", ".w.", "..x", "rw.", "r.x")]
OPERATIONS += [("create 644 0 d/o", "d/o"), ("create 2755 0 g/o", "g/o"), ("create 2745 0 g/o", "g/o"), ("create 6755 0 t/o", "t/o")]
OPERATIONS += [("mkdir 755 0 d/o", "d/o"), ("mkdir 755 0 g/o", "g/o"), ("chardev 644 0 t/o", "t/o"), ("whiteout 644 0 t/o", "t/o"), ("mkfifo 644 0 t/o", "t/o")]
OPERATIONS += [("unlink d/i", ""), ("unlink t/i", ""), ("rename t/i t/o", "t/o"), ("rename t/i g/o", "g/o"), ("rename d/i t/i", "t/i")]
OPERATIONS += [("chmod %s %s" % (mode, path), path) for path in "fsnd" for mode in ("600", "2644", "2775", "6755")]
OPERATIONS += [("chown %s %s" % (owner, path), path) for path in "fsnd" for owner in ("2:-", "-:20", "-:30", "1:10", "2:20", "-:-")]
OPERATIONS += [("utimens %s %s %s" % (a, m, path), "") for path in "fn" for a, m in (("now", "now"), ("5", "5"), ("now", "-"), ("-", "5"))]
OPERATIONS += [("write %s" % path, path) for path in "fxsn"]
OPERATIONS += [("setxattr %s v %s" % (name, path), path) for path in "fst" for name in ("user.a", "trusted.a", "security.a", "security.capability")]
OPERATIONS += [("getxattr %s %s" % (name, path), "") for path in "es" for name in ("user.x", "trusted.x", "security.x")]
OPERATIONS += [("removexattr %s %s" % (name, path), "") for path in "es" for name in ("user.x", "trusted.x", "security.x")]
OPERATIONS += [("setacl %s %s" % (mode, path), path) for path in "fsn" for mode in ("rwxr-x--x", "rw-rw-rw-")]

class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

class Data(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]

def become(asker, capability):
    uid, gids = asker.split(":")
    gid, *groups = map(int, gids.split(","))
    libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setgroups(groups); os.setresgid(gid, gid, gid); os.setresuid(int(uid), int(uid), int(uid))
    if capability:
        data = (Data * 2)()
        data[0].effective = data[0].permitted = 1 << CAPABILITIES[capability]
        assert libc.capset(ctypes.byref(Header(0x20080522, 0)), data) == 0

def bits(text):
    return sum(1 << (8 - at) for at, c in enumerate(text) if c not in "-ST") \
        | (0o4000 if text[2] in "sS" else 0) | (0o2000 if text[5] in "sS" else 0) | (0o1000 if text[8] in "tT" else 0)

def make():
    for line in FILES.splitlines():
        path, mode, owner = line.split()
        uid, gid = map(int, owner.split(":"))
        os.mkdir(path) if mode[0] == "d" else open(path, "w").write("v")
        os.chown(path, uid, gid)
        if path in ("e", "s"):
            for name in ("user.x", "trusted.x", "security.x"):
                os.setxattr(path, name, b"v")
        os.chmod(path, bits(mode[1:]))

def acl(mode):
    entry = lambda tag, perm: tag.to_bytes(2, "little") + perm.to_bytes(2, "little") + b"\xff" * 4
    perms = [bits(mode) >> shift & 7 for shift in (6, 3, 0)]
    return (2).to_bytes(4, "little") + b"".join(entry(tag, perm) for tag, perm in zip((1, 4, 0x20), perms))

def utimens(a, m, path):
    class Spec(ctypes.Structure):
        _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]
    spec = lambda t: Spec(0, {"now": (1 << 30) - 1, "-": (1 << 30) - 2}[t]) if t in ("now", "-") else Spec(int(t), 0)
    if libc.utimensat(-100, path.encode(), (Spec * 2)(spec(a), spec(m)), 0):
        raise OSError(ctypes.get_errno(), "utimensat")

def value(name):
    # A program's capabilities are checked to be some: VFS_CAP_REVISION_2, none.
    return b"\0\0\0\2" + bytes(16) if name == "security.capability" else b"v"

def write(path):
    # It is open: what a write leaves of the mode is not about permission to open.
    os.write(opened[path], b"w")

def do(verb, *args):
    octal = lambda text: int(text, 8)
    os.umask(octal(args[1]) if verb in ("create", "mkdir", "chardev", "whiteout", "mkfifo") else 0)
    node = lambda kind, rdev: os.mknod(args[2], kind | octal(args[0]), rdev)
    {
        "lookup": lambda: os.lstat(args[0]),
        "access": lambda: os.access(args[1], sum({"r": 4, "w": 2, "x": 1, ".": 0}[c] for c in args[0]), effective_ids=True) or denied(),
        "create": lambda: os.close(os.open(args[2], os.O_CREAT | os.O_EXCL | os.O_WRONLY, octal(args[0]))),
        "mkdir": lambda: os.mkdir(args[2], octal(args[0])),
        "chardev": lambda: node(stat.S_IFCHR, os.makedev(1, 3)),
        "whiteout": lambda: node(stat.S_IFCHR, 0),
        "mkfifo": lambda: node(stat.S_IFIFO, 0),
        "unlink": lambda: os.unlink(args[0]),
        "rename": lambda: os.rename(args[0], args[1]),
        "chmod": lambda: os.chmod(args[1], octal(args[0])),
        "chown": lambda: os.chown(args[1], *(-1 if id == "-" else int(id) for id in args[0].split(":"))),
        "utimens": lambda: utimens(*args),
        "write": lambda: write(args[0]),
        "setxattr": lambda: os.setxattr(args[2], args[0], value(args[0])),
        "getxattr": lambda: os.getxattr(args[1], args[0]),
        "removexattr": lambda: os.removexattr(args[1], args[0]),
        "setacl": lambda: os.setxattr(args[1], "system.posix_acl_access", acl(args[0])),
    }[verb]()

def denied():
    raise OSError(errno.EACCES, "access")

def outcome(top, asker, capability, operation, path):
    here = os.path.join(top, "record")
    os.mkdir(here, 0o755)
    os.chdir(here)
    make()
    global opened
    opened = {path: os.open(path, os.O_RDWR) for path in "fxsn"}
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(asker, capability)
            do(*operation.split())
            told = "ok"
        except OSError as error:
            told = ERRORS.get(error.errno) or errno.errorcode[error.errno]
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    told = os.read(read, 100).decode()
    os.close(read)
    os.waitpid(pid, 0)
    for file in opened.values():
        os.close(file)
    if told == "ok" and path:
        found = os.lstat(path)
        told += "; %s %s %d:%d" % (path, stat.filemode(found.st_mode), found.st_uid, found.st_gid)
    os.chdir("/")
    shutil.rmtree(here)
    return told

for operation, path in OPERATIONS:
    askers = {}
    for asker in ASKERS:
        told = outcome(sys.argv[1], asker, None, operation, path)
        others = ((name, outcome(sys.argv[1], asker, name, operation, path)) for name in CAPABILITIES)
        told += "".join(" | %s %s" % (name, other) for name, other in others if other != told)
        askers.setdefault(told, []).append(asker)
    for told, who in askers.items():
        print("%s: %s -> %s" % (operation, " ".join(who), told))
