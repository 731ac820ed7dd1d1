"""The rules on the profile of a job, one file each, with the names that they have on AWS."""
