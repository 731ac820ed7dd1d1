"""How many operations an operator performs and how many bytes it has to move, from the shapes of its inputs.

Counted as `torch.utils.flop_counter` does: two operations for a product and its sum. Bytes are each input read once and
the output written once, which is what a roofline assumes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from trainyard.insight.profiling.traces.element_types import element_bytes

Shape = Sequence[int]


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """What one call has to do. `element_type` is that of its inputs."""

    flops: int
    moved_bytes: int
    element_type: str


@dataclass(frozen=True, slots=True)
class _Product:
    """Operations, elements of the output, and which inputs are tensors that are read."""

    flops: int
    output_elements: int
    read: Sequence[Shape]


def operator_work(name: str, shapes: str, types: str, inputs: str = "") -> OperatorWork | None:
    """Return the work of a call; None if it is not known. The arguments are JSON as in a trace."""
    formula = _FORMULAS.get(name)
    if formula is None:
        return None
    try:
        extents, kinds, arguments = (json.loads(text or "[]") for text in (shapes, types, inputs))
        product = formula(extents, arguments)
        element = next(kind for kind in kinds if element_bytes(kind))
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, StopIteration, ZeroDivisionError):
        return None
    elements = product.output_elements + sum(prod(shape) for shape in product.read)
    if product.flops <= 0:
        return None
    return OperatorWork(product.flops, elements * element_bytes(element), element)


def has_formula(name: str) -> bool:
    return name in _FORMULAS


def _matrices(first: Shape, second: Shape, *more: Shape) -> _Product:
    *batch, rows, inner = first
    *_, also_inner, columns = second
    if inner != also_inner:
        raise ValueError("the matrices do not fit")
    count = prod(batch)
    return _Product(2 * count * rows * inner * columns, count * rows * columns, (first, second, *more))


def _linear(shapes: Sequence[Shape], _: object) -> _Product:
    given, weight = shapes[0], shapes[1]
    output, inner = weight
    rows = prod(given[:-1])
    if given[-1] != inner:
        raise ValueError("the matrices do not fit")
    return _Product(2 * rows * inner * output, rows * output, (given, weight))


def _convolution(padding: int, stride: int, dilation: int, transposed: int | None) -> Callable[..., _Product]:
    """Return the formula of an operator that has its arguments at these places."""

    def formula(shapes: Sequence[Shape], arguments: Sequence[str]) -> _Product:
        given, weight = shapes[0], shapes[1]
        if transposed is not None and arguments[transposed] in ("True", "1"):
            # Each element of the input meets the whole kernel.
            flops = 2 * prod(given) * prod(weight[1:])
            return _Product(flops, 0, (given, weight))
        spans = [json.loads(arguments[place]) for place in (padding, stride, dilation)]
        pads, strides, dilations = (each * (len(given) - 2) if len(each) == 1 else each for each in spans)
        output = [
            (size + 2 * pad - spread * (width - 1) - 1) // step + 1
            for size, width, pad, step, spread in zip(given[2:], weight[2:], pads, strides, dilations, strict=True)
        ]
        elements = given[0] * weight[0] * prod(output)
        return _Product(2 * elements * prod(weight[1:]), elements, (given, weight))

    return formula


def _convolution_backward(shapes: Sequence[Shape], arguments: Sequence[str]) -> _Product:
    gradient, given, weight = shapes[:3]
    wanted = [bool(each) for each in json.loads(arguments[10].lower())]
    # Each element on the side with the channels of the weight's first dimension meets the whole kernel.
    met = given if arguments[7] in ("True", "1") else gradient
    flops = 2 * prod(met) * prod(weight[1:]) * sum(wanted[:2])
    written = (prod(given) if wanted[0] else 0) + (prod(weight) if wanted[1] else 0)
    return _Product(flops, written, (gradient, given, weight))


def _attention(shapes: Sequence[Shape], _: object) -> _Product:
    query, key, value = shapes[:3]
    batch, heads, length, inner = query
    flops = 2 * batch * heads * length * key[-2] * (inner + value[-1])
    return _Product(flops, batch * heads * length * value[-1], (query, key, value))


def _attention_backward(shapes: Sequence[Shape], _: object) -> _Product:
    gradient, query, key, value = shapes[:4]
    batch, heads, length, inner = query
    flops = 2 * batch * heads * length * key[-2] * (3 * inner + 2 * value[-1])
    return _Product(flops, prod(query) + prod(key) + prod(value), (gradient, query, key, value))


_FORMULAS: Mapping[str, Callable[..., _Product]] = {
    "aten::mm": lambda shapes, _: _matrices(shapes[0], shapes[1]),
    "aten::addmm": lambda shapes, _: _matrices(shapes[1], shapes[2], shapes[0]),
    "aten::_addmm_activation": lambda shapes, _: _matrices(shapes[1], shapes[2], shapes[0]),
    "aten::_scaled_mm": lambda shapes, _: _matrices(shapes[0], shapes[1]),
    "aten::bmm": lambda shapes, _: _matrices(shapes[0], shapes[1]),
    "aten::baddbmm": lambda shapes, _: _matrices(shapes[1], shapes[2], shapes[0]),
    "aten::linear": _linear,
    "aten::conv1d": _convolution(4, 3, 5, None),
    "aten::conv2d": _convolution(4, 3, 5, None),
    "aten::conv3d": _convolution(4, 3, 5, None),
    "aten::convolution": _convolution(4, 3, 5, 6),
    "aten::_convolution": _convolution(4, 3, 5, 6),
    "aten::cudnn_convolution": _convolution(2, 3, 4, None),
    "aten::mkldnn_convolution": _convolution(3, 4, 5, None),
    "aten::miopen_convolution": _convolution(3, 4, 5, None),
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_efficient_attention": _attention,
    "aten::_scaled_dot_product_cudnn_attention": _attention,
    "aten::_scaled_dot_product_flash_attention_backward": _attention_backward,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention_backward,
}
