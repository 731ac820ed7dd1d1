"""Runs the program of an instance as several ranks, and keeps them together.

A job with one rank per instance needs only `variables.py`: the agent sets the variables of the program. With more
ranks, or with a server next to the program, the launcher runs in the sandbox:

    main.py       its start: in its own Python, or forked from a warm worker
    spec.py       what it runs
    launcher.py   starts the ranks, forwards signals, and ends all when one has failed
    output.py     merges the lines of all ranks into one stream
    report.py     what the agent learns about the ranks
    servers.py    parameter servers next to the program
    mpi/          the same with a real mpirun

Every Python of a job also loads these at its start, through instance/compat/sitecustomize.py:

    stacks.py          dumps the stacks of a process that hangs
    import_watcher.py  attaches the hook once the program imports a framework
    sdk_drivers.py     lets drivers of the sagemaker SDK start ranks on a machine that jobs share
    gloo_exit.py       delays the exit of a process until its collectives are finished

All of it uses only the standard library, and little of that, since it loads before the first line of a program.
"""
