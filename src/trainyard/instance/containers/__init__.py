"""Programs in images of their own, run by podman or docker: beside instance/sandbox, with the same contract."""
