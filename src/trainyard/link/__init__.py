"""Agent and yard: the specification of an instance, the frames it reports, the mailbox of its commands."""
