"""The protocol between agent and yard: the spec of an instance, the frames it reports, the mailbox of its commands."""
