"""The names of the ways in which `tf.image.resize` computes pixels."""


class ResizeMethod:
    """How `tf.image.resize` computes pixels; only three of these ways are here.

    Source: tf.image.ResizeMethod.
    """

    AREA = "area"
    BICUBIC = "bicubic"
    BILINEAR = "bilinear"
    GAUSSIAN = "gaussian"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    MITCHELLCUBIC = "mitchellcubic"
    NEAREST_NEIGHBOR = "nearest"
