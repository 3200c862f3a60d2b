"""tf.train.Example: the message most TFRecord files hold.

Covers: writing one, reading one, reading a batch of them into columns. Needs neither TensorFlow nor protobuf.
Does not cover: the frame around a record (emlio.tfrecord), SequenceExample, what an image's bytes mean.
"""

from emlio.example.columns import Column, ColumnDecoder, Piece
from emlio.example.decode import parse_example
from emlio.example.encode import FeatureValue, encode_example

__all__ = ["Column", "ColumnDecoder", "FeatureValue", "Piece", "encode_example", "parse_example"]
