"""Starts the ranks of a job with the mpirun of its environment.

    mpirun.py    finds the version of mpirun and builds its command line
    host.py      the launcher of each host: runs mpirun on the first, and the daemon that mpirun asks for on the others
    remote.py    what mpirun runs instead of ssh, and how hosts talk
    sdk_launch.py  the launcher of each host when the MPI driver of the sagemaker SDK starts it
    starter.py   what mpirun runs instead of the program: it runs the program and reports its end

The ranks of a host write to its launcher instead of through mpirun, which would split their lines anywhere.
"""
