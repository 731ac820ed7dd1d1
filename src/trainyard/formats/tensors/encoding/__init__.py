"""File encodings of tensors: Arrow streams and FlatBuffers, safetensors, TensorFlow event records, JSON documents."""
