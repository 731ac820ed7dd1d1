"""The private network of a job, made by a short-lived process over netlink."""
