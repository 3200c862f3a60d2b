"""What a DALI pipeline needs of EMLIO.

    @pipeline_def
    def training():
        encoded, label = emlio.dali.inputs("image/encoded", "image/class/label")
        ...

    loader = EmlioLoader(address, batch_size=256, pipeline=training, output_map=["image", "label"])

Covers: the public names. DALI itself is imported when a pipeline is built. Does not cover: the code (emlio.receiver.dali_inputs,
emlio.receiver.dali_presets).
"""

from emlio.receiver.dali_inputs import inputs
from emlio.receiver.dali_presets import image_eval, image_train

__all__ = ["image_eval", "image_train", "inputs"]
