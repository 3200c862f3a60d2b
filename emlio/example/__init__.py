"""tf.train.Example: the message that most TFRecord files hold.

Covers: writing one, reading one, reading a batch of them into columns, without TensorFlow or
protobuf. Does not cover: the frame around a record (emlio.tfrecord), SequenceExample, the meaning
of an image's bytes.
"""

from emlio.example.columns import Column, ColumnDecoder, Piece
from emlio.example.decode import parse_example
from emlio.example.encode import FeatureValue, encode_example, example_parts

__all__ = ["Column", "ColumnDecoder", "FeatureValue", "Piece", "encode_example", "example_parts", "parse_example"]
