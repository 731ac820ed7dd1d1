"""The ExperimentConfig of a training job: the experiment and the trial that its component belongs to."""

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server.experiments.storage import EXPERIMENT, TRIAL, entity_key, trial_of
from trainyard.server.records.contract import Records
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.experiments.entities import not_found


def require_experiment(records: Records, config: Shape, *, account: str, region: str) -> None:
    """Refuse an experiment or trial that does not exist, and a trial of another experiment."""
    for member, kind in (("ExperimentName", EXPERIMENT), ("TrialName", TRIAL)):
        if member not in config:
            continue
        try:
            found = records.load(entity_key(account, kind, config[member]))
        except NotFound as error:
            raise not_found(kind, config[member], region=region, account=account) from error
        if kind == TRIAL and "ExperimentName" in config:
            experiment = trial_of(found).experiment
            if experiment.lower() != config["ExperimentName"].lower():
                raise InvalidRequest(
                    f"The trial {config['TrialName']} belongs to the experiment {experiment}, "
                    f"not to {config['ExperimentName']}."
                )
