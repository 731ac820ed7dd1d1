"""The profiler in the program: what each step spends its time on, and profiles of some of the steps.

    step_clock.py       divides the time of the training thread among the phases of steps
    step_file.py        writes the steps of this rank to a file
    torch_timer.py      follows a torch training, and drives the clock
    timed_calls.py      times the functions of torch that belong to one phase, and those that wait for a GPU
    rank_waits.py       tells where a backward waits for other ranks
    xgboost_timer.py    times the rounds of XGBoost trainings
    attachment.py       attaches all of it to a framework that was just imported
    late_attachment.py  does so later, if the job has its profiler disabled

Facts about the program:

    facts.py            what the program is: framework, device, precision, size
    loaders.py          watches data loaders and their workers
    stack_sampler.py    samples in which lines the training thread spends its time
    memory_holders.py   what holds the memory

Trials of a program, with changes from outside:

    trial.py            what is changed, what was applied, and how the program ends
    torch_changes.py    changes data loaders, threads, and the forwards of models

Profiles of some of the steps:

    windows_on_demand.py  waits until one is wanted
    profile_requests.py   reads which are wanted
    windows.py            decides when each begins and ends
    torch_profile.py      profiles by torch.profiler
    python_profile.py     profiles by cProfile or pyinstrument
    event_recorder.py     records phases, data loaders and communication as events
    profile_output.py     where files go
    background.py         the thread that writes them

None of it needs numpy: the environments of programs may lack it. What it costs is measured by benchmarks/step_timer.
"""
