"""Has rules judge a training: in its process what statistics tell of one worker, beside it all else.

attachment.py  attaches the hook, in the process that trains
joining.py     joins rules and the flight recorder to it
board.py       and what TensorBoard shows
rules_config.py
               the rules of the job, as its agent has laid them down
telling.py     what is told to the agent
start.py       a judge beside the program begins, in a Python that has what it needs
main.py        a judge beside the program: follows the tensors folder and judges what comes
folders.py     the tensors folders of all instances as one
custom.py      the rules of a user's own file
"""
