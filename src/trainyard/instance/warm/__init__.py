"""Starts programs without delay by forking them from an interpreter that has already imported their framework.

A program forked from a warm worker runs in the same sandbox as any other, and behaves as if it had been started with
`python script.py`. Where that cannot be guaranteed, `worker_selection.py` decides that it starts cold. link/warm.py
defines what a worker is and how to find and end it, since the yard does that too.

    agent      worker_selection.py asks a worker for a fork, or starts one for the next program
    starter.py takes the lock, examines the environment (trust.py), and becomes the worker
    worker.py  imports, waits, forks sandbox supervisors
    program    after the fork, interpreter.py resets the interpreter, and script.py runs the script
"""
