"""Turns the program of an instance into the ranks that run there, and holds them together.

A job whose instances run one rank each needs none of it but `variables.py`: the agent gives the program its variables.
Where there are more, or a server beside the program, the launcher is what runs in the sandbox:

    main.py      its start in a Python of its own
    warm.py      its start in a process that a warm worker has forked, where ranks are forks too
    launcher.py  starts the ranks, passes signals on, and ends all when one has failed
    output.py    brings the lines of all ranks into one stream, each whole
    report.py    what the agent is told of the ranks
    stacks.py    lets a process show where it hangs
    attaching.py has the tensors of a process captured, once it imports a framework
    settling.py  lets a process end whose collectives have only just ended
    mpi/         the same by a real mpirun

All of it uses the standard library alone, and little of that: it is loaded before the first line of a program.
"""
