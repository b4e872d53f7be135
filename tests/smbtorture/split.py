"""A proxy before several machines: what connects to it reaches the first of them, then the next, and so on in turn.

A client that knows one address has its connections at different machines by that. Bytes pass as they are.
"""
import socket, threading

PORT, CONNECT_SECONDS = 445, 10


class Split:
    """Listens at an address for as long as its block runs. The block's first connection reaches the first machine."""

    def __init__(self, address, machines):
        self.address, self.machines, self.accepted = address, machines, 0
        self.open, self.lock = set(), threading.Lock()
        self.listener = socket.create_server((address, PORT), backlog=64)

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self.address

    def __exit__(self, *_):
        # A shutdown ends an accept that is under way, which a close does not.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            ends = list(self.open)
        for end in ends:
            self.end(end)

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            machine = self.machines[self.accepted % len(self.machines)]
            self.accepted += 1
            try:
                far = socket.create_connection((machine, PORT), timeout=CONNECT_SECONDS)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in near, far:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.open |= {near, far}
            for pair in (near, far), (far, near):
                threading.Thread(target=self.pass_on, args=pair, daemon=True).start()

    def pass_on(self, source, sink):
        """Passes on what comes, until one of the two ends. Then both do."""
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        self.end(source), self.end(sink)

    def end(self, end):
        """Ends a connection, on which two threads may wait."""
        with self.lock:
            if end not in self.open:
                return
            self.open.discard(end)
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()
