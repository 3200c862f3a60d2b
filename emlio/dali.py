"""The names that a DALI pipeline uses.

    @pipeline_def
    def training():
        encoded, label = emlio.dali.inputs("image/encoded", "image/class/label")
        ...

    loader = EmlioLoader(address, batch_size=256, dali=DaliPipeline(training, outputs=["image", "label"]))

Covers: the public names. DALI itself is imported when a pipeline is built. Does not cover: the code
(emlio.receiver.dali.inputs, emlio.receiver.dali.presets,
emlio.receiver.dali_iterator).
"""

from emlio.receiver.dali.inputs import inputs
from emlio.receiver.dali.presets import image_eval, image_train
from emlio.receiver.dali_iterator import Iterator

__all__ = ["Iterator", "image_eval", "image_train", "inputs"]
