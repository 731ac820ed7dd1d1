"""How many bytes an element of a tensor has, by the names that torch and its libraries give to types."""

_BYTES = {
    8: ("long int", "double", "c10::complex<float>", "Long", "Double", "int64", "float64"),
    4: ("float", "int", "Float", "Int", "float32", "int32"),
    2: ("c10::Half", "c10::BFloat16", "short int", "Half", "BFloat16", "Short", "float16", "bfloat16", "int16"),
    1: ("unsigned char", "signed char", "bool", "Byte", "Char", "Bool", "uint8", "int8"),
    16: ("c10::complex<double>",),
}
_BY_NAME = {name: size for size, names in _BYTES.items() for name in names}
_FLOAT8 = ("c10::Float8", "Float8", "float8")

HALF = frozenset({"c10::Half", "c10::BFloat16"})


def element_bytes(name: str) -> int:
    """Return the size; 0 for what is no type of a tensor."""
    return 1 if name.startswith(_FLOAT8) else _BY_NAME.get(name, 0)
