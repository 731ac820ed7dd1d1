from trainyard.wire.fault import Fault
from trainyard.wire.models import Models
from trainyard.wire.protocols.error_shapes import FaultNames, fault_names, fault_type


def test_a_fault_is_known_by_its_shape_and_by_its_code(models: Models) -> None:
    operation = models.service("iam").operation_model("GetRole")
    by_shape = fault_names(Fault("NoSuchEntityException", "x"), operation)
    assert by_shape == fault_names(Fault("NoSuchEntity", "x"), operation)
    assert (by_shape.shape, by_shape.code) == ("NoSuchEntityException", "NoSuchEntity")


def test_a_fault_that_the_operation_does_not_list_is_spelled_one_way(models: Models) -> None:
    operation = models.service("sagemaker").operation_model("CreateTrainingJob")
    unlisted = FaultNames("ThrottlingException", "ThrottlingException")
    assert fault_names(Fault("ThrottlingException", "x"), operation) == unlisted
    assert fault_names(Fault("ThrottlingException", "x"), None) == unlisted


def test_members_have_the_types_of_the_shape(models: Models) -> None:
    fault = Fault("ModelError", "x", members={"OriginalStatusCode": "500", "OriginalMessage": "500"})
    names = fault_names(fault, models.service("sagemaker-runtime").operation_model("InvokeEndpoint"))
    assert names.members(fault) == {"OriginalStatusCode": 500, "OriginalMessage": "500"}


def test_the_status_decides_the_fault_type() -> None:
    assert (fault_type(Fault("A", "x", status=404)), fault_type(Fault("A", "x", status=503))) == ("Sender", "Receiver")
