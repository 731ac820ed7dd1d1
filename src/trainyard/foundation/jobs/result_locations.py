"""Where the results of a training job are stored: as archives, or as one object for each file."""

MODEL, OUTPUT = "model", "output"


def result_uri(output_path: str, job_name: str, kind: str, *, is_compressed: bool) -> str:
    """Return the location of the model or the output of a job: an archive, or a prefix that ends with a slash."""
    name = f"{kind}.tar.gz" if is_compressed else f"{kind}/"
    return f"{output_path.rstrip('/')}/{job_name}/output/{name}"
