"""The features of an encoded image, named as in ImageNet's usual TFRecord files.

Covers: names and values of the features. The image's bytes are stored unchanged, never re-encoded.
Does not cover: the source of the image and its label.

    image/encoded     bytes   the file, unchanged
    image/format      bytes   "JPEG", "PNG", ... by the content, not by the name
    image/height, image/width, image/channels          int64, from the header
    image/colorspace  bytes   "RGB", "Grayscale", "CMYK"
    image/filename    bytes   the file's name without folders
    image/class/label int64   from 0 (some ImageNet scripts count from 1; 0 is "background")
    image/class/text  bytes   the plain name of the class
    image/class/synset bytes  only where the class is a WordNet synset, like n01440764
"""

from emlio.example import FeatureValue
from emlio.images.header import read_image_header

__all__ = ["image_features"]


def image_features(encoded: bytes, filename: str) -> dict[str, FeatureValue]:
    """Return the features that follow from an image alone.

    Raises:
        DatasetError: the bytes are not an image.
    """
    header = read_image_header(encoded)
    return {
        "image/channels": header.channels,
        "image/colorspace": header.colorspace,
        "image/encoded": encoded,
        "image/filename": filename,
        "image/format": header.format,
        "image/height": header.height,
        "image/width": header.width,
    }
