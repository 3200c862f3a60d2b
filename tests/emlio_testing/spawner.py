"""A process that has imported what tests' processes need, and forks them: an import costs more than most tests."""
import json, os, select, signal, socket, sys, types

def serve(channel):
    """Fork for each request; return the work in the child, None in the parent when the channel ends."""
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker); signal.signal(signal.SIGCHLD, lambda *_: None)
    states = {}
    while True:
        ready, _, _ = select.select([channel, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            while states:
                try: pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError: break
                if pid == 0: break
                fd = states.pop(pid)
                os.write(fd, (os.waitstatus_to_exitcode(status)).to_bytes(4, "little", signed=True)); os.close(fd)
        if channel not in ready: continue
        message, fds, _, _ = socket.recv_fds(channel, 1 << 20, 4)
        if not message: return None
        order = json.loads(message); *std, state = fds
        pid = os.fork()
        if pid:
            states[pid] = state
            for fd in std: os.close(fd)
            channel.send(str(pid).encode()); continue
        signal.set_wakeup_fd(-1); signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (wake, waker, state, *states.values()): os.close(fd)
        channel.close()
        for place, fd in enumerate(std): os.dup2(fd, place); os.close(fd)
        os.environ.clear(); os.environ.update(order["environment"]); os.chdir(order["folder"])
        return order

def main():
    from emlio import EmlioLoader, Recovery
    import emlio, emlio.daemon.cli, emlio.receiver.engine, numpy, zmq, cryptography  # noqa
    channel = socket.socket(fileno=int(sys.argv[1]))
    order = serve(channel)
    if order is None: return
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        stream = os.fdopen(fd, mode, buffering=1 if mode == "w" else -1, closefd=False); setattr(sys, name, stream); setattr(sys, f"__{name}__", stream)
    sys.argv = order["argv"]
    module = types.ModuleType("__main__"); sys.modules["__main__"] = module
    if order.get("module"):
        sys.modules.pop(order["module"], None)
        import runpy; runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    else:
        exec(compile(order["script"], "<string>", "exec"), module.__dict__)

if __name__ == "__main__":
    main()
