"""The rank's decisions: one state machine that takes events and returns instructions.

It opens no socket, starts no thread and reads no clock: each event brings the time. The receive
thread carries out the instructions, in order (emlio.receiver.engine.engine).
"""
