"""tf.train.Example: the message that most TFRecord files hold."""

from emlio.example.columns import Column, ColumnDecoder, Piece
from emlio.example.decode import parse_example
from emlio.example.encode import FeatureValue, encode_example, example_parts

__all__ = ["Column", "ColumnDecoder", "FeatureValue", "Piece", "encode_example", "example_parts", "parse_example"]
