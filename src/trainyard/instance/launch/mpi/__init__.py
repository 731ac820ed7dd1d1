"""The ranks of a job started by the mpirun that its environment has.

    mpirun.py    which mpirun it is, and the command line by which it starts the ranks
    host.py      the launcher of each host: on the first it runs mpirun, on the others the daemon that mpirun asks for
    remote.py    what mpirun runs instead of ssh, and how hosts talk
    starter.py   what mpirun runs instead of the program: it runs that, and tells of its end

The ranks of a host write to its launcher, not through mpirun, which would cut their lines where it likes.
"""
