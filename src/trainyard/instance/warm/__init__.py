"""Starts programs at once, by forking them from an interpreter that has their framework imported.

A program forked from a warm worker runs in the same sandbox as any other and behaves as if it had been started by
`python script.py`. Where that cannot be promised, it is: `warmth.py` decides. What a worker is, how it is found and how
it is ended is told in link/warm.py, since the yard does that too.

    agent      warmth.py asks a worker for a fork, or has one made for the next program
    starter.py takes the lock, examines the environment (trust.py), and becomes the worker
    worker.py  imports, waits, forks keepers
    program    after the fork, interpreter.py makes the interpreter a fresh one, and script.py runs the script
"""
